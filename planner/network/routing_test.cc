#include "planner/network/routing.h"

#include "common/base/check.h"
#include "common/plan/testing/for_each_seed.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"
#include "planner/network/port_load.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Devices 0 = a.0, 1 = a.1, 2 = b.0, 3 = b.1, 4 = c.0.
TensorTable FromAToBAndC() {
  return TableOf({{.shape = "[8]",
                   .source_mesh = "x=2 on a.0-1",
                   .source = "[x]",
                   .destination_mesh = "y=3 on b.0-1,c.0",
                   .destination = "[-]"}});
}

Routes TwoRelays() {
  Routes routes;
  routes.BeginRelay({.slice_class = 0, .root = 0, .begin = 0, .end = 16});
  routes.AddHop(0, 2);
  routes.AddHop(2, 3);
  routes.AddHop(2, 4);
  routes.BeginRelay({.slice_class = 1, .root = 1, .begin = 0, .end = 16});
  routes.AddHop(1, 2);
  routes.AddHop(2, 4);
  return routes;
}

TEST(RoutingTest, ChannelsCarryRelaysInTheirOrder) {
  Routes routes = TwoRelays();
  AssignPlacesAndPeriods(FromAToBAndC(), routes);
  std::vector<int32_t> places, periods;
  for (const Hop& hop : routes.hops) {
    places.push_back(hop.place);
    periods.push_back(hop.period);
  }
  EXPECT_THAT(places, ElementsAre(0, 0, 0, 0, 1));
  EXPECT_THAT(periods, ElementsAre(0, 1, 1, 0, 1));
}

TEST(RoutingTest, OnlyHopsBetweenHostsLoadPorts) {
  const TensorTable tensors = FromAToBAndC();
  const HostNetwork network = HostNetworkOf(tensors, Topology());
  const PortLoad load = ComputePortLoad(tensors, network, TwoRelays());
  EXPECT_THAT(load.host_out, ElementsAre(32, 32, 0));
  EXPECT_THAT(load.host_in, ElementsAre(0, 32, 32));
  EXPECT_EQ(load.network_bytes, 64);
  EXPECT_EQ(load.depth, 2);
}

TEST(RoutingTest, EveryFurtherHopFillsForAPeriod) {
  const TensorTable tensors = FromAToBAndC();
  ASSERT_OK_AND_ASSIGN(const Topology topology,
                       Topology::Create({{"a", {{"n", 4, 4}}}, {"b", {{"n", 2, 8}}}}, {}, 8));
  const HostNetwork network = HostNetworkOf(tensors, topology);
  const PortLoad load = ComputePortLoad(tensors, network, TwoRelays());
  const BusiestPort busiest = FindBusiestPort(load, network);
  EXPECT_EQ(busiest.seconds, 16);  // 32 bytes out of b
  EXPECT_DOUBLE_EQ(FillSeconds(load, busiest, 8), 16.0 / 4);
  EXPECT_DOUBLE_EQ(FillSeconds(load, busiest, 1000), 16);
}

TEST(RoutingTest, RackPortsAreLoadedByWhatCrosses) {
  const TensorTable tensors = FromAToBAndC();
  ASSERT_OK_AND_ASSIGN(
      const Topology topology,
      Topology::Create({{"a", {{"n", 9, 9}}}, {"b", {{"n", 9, 9}}}, {"c", {{"n", 9, 9}}}},
                       {{"r", {"a", "b"}, 1, 1}, {"s", {"c"}, 2, 2}}));
  const HostNetwork network = HostNetworkOf(tensors, topology);
  const PortLoad load = ComputePortLoad(tensors, network, TwoRelays());
  EXPECT_THAT(load.rack_up, ElementsAre(32, 0));
  EXPECT_THAT(load.rack_down, ElementsAre(0, 32));
  EXPECT_EQ(FindBusiestPort(load, network).seconds, 32);
}

TEST(RoutingTest, DevicesOnAHostAreAPartOfTheList) {
  const TensorTable tensors = FromAToBAndC();
  const std::vector<DeviceRank> devices = {1, 2, 3, 4};
  EXPECT_THAT(DevicesOnHost(devices, 1, tensors), ElementsAre(2, 3));
  EXPECT_THAT(DevicesOnHost({&devices[1], 2}, 1, tensors), ElementsAre(2, 3));
  EXPECT_TRUE(DevicesOnHost({&devices[1], 2}, 0, tensors).empty());
}

TEST(RoutingTest, TooManyRelaysAndHopsAreRefusedByName) {
  EXPECT_OK(CheckRelayCount("relay", Plan::kRelaysMax));
  EXPECT_THAT(CheckRelayCount("relay", Plan::kRelaysMax + 1),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("strategy relay needs 2097153 relays or more")));
  EXPECT_OK(CheckHopCount("relay", Plan::kHopsMax));
  EXPECT_THAT(CheckHopCount("relay", Plan::kHopsMax + 1),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("strategy relay needs 16777217 hops or more")));
}

int64_t LeastHopsOf(absl::string_view tensor) {
  const absl::StatusOr<Slicing> slicing = Slicing::Create(TableOf({TensorOf(tensor)}));
  CHECK_OK(slicing);
  EXPECT_EQ(slicing->classes().size(), 1u);
  return LeastHops(*slicing, 0);
}

TEST(RoutingTest, EveryReceiverThatHoldsNothingTakesAHop) {
  EXPECT_EQ(LeastHopsOf("[8]: x=2 on a.0-1 [-] -> y=3 on b.0-2 [-]"), 3);
  EXPECT_EQ(LeastHopsOf("[8]: x=2 on a.0-1 [-] -> y=3 on a.1-3 [-]"), 2);
  EXPECT_EQ(LeastHopsOf("[8]: x=2 on a.0-1 [-] -> y=2 on a.0-1 [-]"), 0);
  EXPECT_EQ(LeastHopsOf("[8]: x=100 on a.0-99 [-] -> y=3 on a.7,a.99-100 [-]"), 1);
  EXPECT_EQ(LeastHopsOf("[8]: x=2 on a.0,a.64 [-] -> y=100 on a.10-109 [-]"), 99);
}

TEST(RoutingTest, LeastHopsAreTheReceiversWithoutTheHolders) {
  ForEachSeed(200, [](RandomSource& random) {
    const TensorTable tensors = RandomTensorTable(random);
    ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(tensors));
    for (ClassIndex c = 0; c < std::ssize(slicing.classes()); ++c) {
      std::vector<DeviceRank> without;
      std::ranges::set_difference(slicing.receivers(c), slicing.holders(c),
                                  std::back_inserter(without));
      ASSERT_EQ(LeastHops(slicing, c), std::ssize(without));
    }
  });
}

}  // namespace
}  // namespace crossmesh
