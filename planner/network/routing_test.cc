#include "planner/network/routing.h"

#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"
#include "planner/network/port_load.h"

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

TEST(RoutingTest, TooManyRelaysAreRefusedByName) {
  EXPECT_OK(CheckRelayCount("relay", Plan::kRelaysMax));
  EXPECT_THAT(CheckRelayCount("relay", Plan::kRelaysMax + 1),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("strategy relay")));
}

}  // namespace
}  // namespace crossmesh
