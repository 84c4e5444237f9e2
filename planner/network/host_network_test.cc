#include "planner/network/host_network.h"

#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;

TensorTable OnFourHosts() {
  return TableOf({{.shape = "[8]",
                   .source_mesh = "x=2 on a.0,b.0",
                   .source = "[x]",
                   .destination_mesh = "y=2 on c.0,d.0",
                   .destination = "[y]"}});
}

TEST(HostNetworkTest, SumsNicsAndKnowsTheFastest) {
  ASSERT_OK_AND_ASSIGN(const Topology topology,
                       Topology::Create({{"a", {{"n0", 3, 5}, {"n1", 4, 1}}},
                                         {"b", {{"n0", 1, 1}}},
                                         {"c", {{"n0", 1, 1}}},
                                         {"d", {{"n0", 1, 1}}}},
                                        {}));
  const HostNetwork network = HostNetworkOf(OnFourHosts(), topology);
  EXPECT_EQ(network.host_rates.out[0], 7);
  EXPECT_EQ(network.host_rates.in[0], 6);
  EXPECT_EQ(network.fastest_nic.out[0], 4);
  EXPECT_EQ(network.fastest_nic.in[0], 5);
  EXPECT_FALSE(network.assumed_rates);
  EXPECT_FALSE(network.has_racks());
  EXPECT_FALSE(network.CrossesRacks(0, 1));
}

TEST(HostNetworkTest, KnowsTheGreatestLatencyOfAHost) {
  const Nic near{.name = "n0", .out_bytes_per_second = 1, .in_bytes_per_second = 1};
  Nic far = near;
  far.name = "n1";
  far.out_latency_ns = 1'000'000'000;
  far.in_latency_ns = 500'000'000;
  ASSERT_OK_AND_ASSIGN(const Topology topology,
                       Topology::Create({{"a", {near, far}}, {"b", {near}}}, {}));
  const HostNetwork network = HostNetworkOf(OnFourHosts(), topology);
  EXPECT_EQ(network.LatencySeconds(0, 1), 1);
  EXPECT_EQ(network.LatencySeconds(1, 0), 0.5);
  EXPECT_EQ(network.LatencySeconds(1, 3), 0);
  EXPECT_FALSE(HostNetworkOf(OnFourHosts(), Topology()).has_latencies());
}

TEST(HostNetworkTest, AssumesRatesOfHostsThatAreNotDescribed) {
  ASSERT_OK_AND_ASSIGN(const Topology topology, Topology::Create({{"a", {{"n0", 3, 5}}}}, {}, 100));
  const HostNetwork network = HostNetworkOf(OnFourHosts(), topology);
  EXPECT_TRUE(network.assumed_rates);
  EXPECT_THAT(network.host_rates.out, ElementsAre(3, 100, 100, 100));
  EXPECT_THAT(network.fastest_nic.in, ElementsAre(5, 100, 100, 100));
}

TEST(HostNetworkTest, AHostInNoRackIsARackWithoutLimit) {
  ASSERT_OK_AND_ASSIGN(
      const Topology topology,
      Topology::Create({{"a", {{"n", 1, 1}}}, {"b", {{"n", 1, 1}}}, {"d", {{"n", 1, 1}}}},
                       {{"r", {"a", "d"}, 6, 7}}));
  const HostNetwork network = HostNetworkOf(OnFourHosts(), topology);
  EXPECT_THAT(network.rack_of_host, ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(network.racks, ElementsAre("r", "", ""));
  EXPECT_THAT(network.rack_rates.out, ElementsAre(6, 0, 0));
  EXPECT_THAT(network.rack_rates.in, ElementsAre(7, 0, 0));
  EXPECT_TRUE(network.CrossesRacks(1, 2));
  EXPECT_FALSE(network.CrossesRacks(0, 3));
}

TEST(HostNetworkTest, RatesBeyondTheGreatestCountAsIt) {
  std::vector<Nic> nics;
  for (int i = 0; i < 64; ++i) {
    nics.push_back({absl::StrCat("n", i), Topology::kNicBytesPerSecondMax, 1});
  }
  ASSERT_OK_AND_ASSIGN(const Topology topology, Topology::Create({{"a", nics}}, {}));
  EXPECT_EQ(HostNetworkOf(OnFourHosts(), topology).host_rates.out[0], PortRates::kMax);
}

}  // namespace
}  // namespace crossmesh
