#include "planner/network/gpu_network.h"

#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TensorTable Table() { return TableOf({TensorOf("[8]: x=2 on a.0-1 [x] -> y=2 on a.3,b.0 [y]")}); }

// Host a with two NICs, of which the first is that of devices 0 and 1; host b with one.
Topology Network(std::vector<HostGpu> of_a) {
  return *Topology::Create(
      {{"a", {{"n0", 100, 200, 1'000, 2'000}, {"n1", 30, 40}, {"n2", 5, 5}}, std::move(of_a)},
       {"b", {{"n0", 50, 60}}, {{0, "n0", 7, 8, 9}}}},
      {{"r", {"a"}, 11, 12}});
}

TEST(GpuNetworkTest, GpusHaveTheirNicsAndHostsThoseOfTheirGpus) {
  const auto network =
      GpuNetworkOf(Table(), Network({{0, "n0", 1, 2, 3}, {1, "n0", 4, 5, 6}, {3, "n1", 7, 8, 9}}));
  ASSERT_TRUE(network.has_value());
  EXPECT_TRUE(network->shares_nics);
  EXPECT_THAT(network->nics.hosts, ElementsAre("a.0", "a.1", "a.3", "b.0"));
  EXPECT_THAT(network->nics.host_rates.out, ElementsAre(50, 50, 30, 50));
  EXPECT_THAT(network->nics.host_rates.in, ElementsAre(100, 100, 40, 60));
  EXPECT_THAT(network->links.host_rates.out, ElementsAre(1, 4, 7, 7));
  EXPECT_THAT(network->links.host_rates.in, ElementsAre(2, 5, 8, 8));
  EXPECT_THAT(network->copy_rates, ElementsAre(3, 6, 9, 9));
  EXPECT_THAT(network->hosts.hosts, ElementsAre("a", "b"));
  EXPECT_THAT(network->hosts.host_rates.out, ElementsAre(130, 50)) << "a NIC counts once";
  EXPECT_THAT(network->hosts.host_rates.in, ElementsAre(240, 60));
  EXPECT_TRUE(network->OnOneHost(0, 2));
  EXPECT_FALSE(network->OnOneHost(2, 3));
}

TEST(GpuNetworkTest, LatenciesAndRacksAreThoseOfTheirHosts) {
  const auto network =
      GpuNetworkOf(Table(), Network({{0, "n0", 1, 1, 1}, {1, "n1", 1, 1, 1}, {3, "n2", 1, 1, 1}}));
  ASSERT_TRUE(network.has_value());
  EXPECT_FALSE(network->shares_nics);
  EXPECT_DOUBLE_EQ(network->nics.LatencySeconds(0, 3), 1e-6);
  EXPECT_DOUBLE_EQ(network->nics.LatencySeconds(1, 3), 0);
  EXPECT_TRUE(network->nics.CrossesRacks(0, 3));
  EXPECT_FALSE(network->nics.CrossesRacks(0, 2));
  EXPECT_THAT(network->nics.rack_rates.out, ElementsAre(11, PortRates::kUnlimited));
  EXPECT_THAT(network->links.racks, IsEmpty());
}

TEST(GpuNetworkTest, OneDeviceThatIsNoGpuMakesAllHostMemory) {
  EXPECT_FALSE(
      GpuNetworkOf(Table(), Network({{0, "n0", 1, 1, 1}, {1, "n0", 1, 1, 1}})).has_value());
  EXPECT_FALSE(GpuNetworkOf(Table(), Topology()).has_value());
}

}  // namespace
}  // namespace crossmesh
