#include "planner/reshard/rack_routes.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

HostNetwork TwoRacks() {
  HostNetwork network;
  network.hosts = {"a", "b", "c"};
  network.host_rates = {.out = {1, 1, 1}, .in = {1, 1, 1}};
  network.racks = {"r0", ""};
  network.rack_of_host = {0, 1, 1};
  network.rack_rates = {.out = {2, PortRates::kUnlimited}, .in = {2, PortRates::kUnlimited}};
  return network;
}

void Add(Demands& demands, std::vector<int32_t> holders, std::vector<int32_t> receivers,
         int64_t bytes) {
  demands.demands.push_back({demands.sets.Intern(holders), demands.sets.Intern(receivers), bytes});
}

TEST(RackRoutesTest, PartsOfAMixBecomePieces) {
  Demands demands;
  Add(demands, {0}, {1, 2}, 10);
  const std::vector<HostHop> chain = {{0, 0, 1}, {0, 1, 2}}, back = {{0, 0, 2}, {0, 2, 1}};
  const HostRoutes routes =
      RoutesOfMix(demands, {.parts = {{{0.33, chain}, {0.01, back}, {0.66, back}}}});
  ASSERT_THAT(routes.pieces, SizeIs(2));  // a tenth of a byte is none
  EXPECT_EQ(routes.pieces[0].end, 3);
  EXPECT_THAT(routes.HopsOf(routes.pieces[0]), testing::ElementsAreArray(chain));
  EXPECT_EQ(routes.pieces[1].end, 10);
  EXPECT_THAT(routes.HopsOf(routes.pieces[1]), testing::ElementsAreArray(back));
}

TEST(RackRoutesTest, ObviousRoutesHaveNoPieces) {
  Demands demands;
  Add(demands, {0}, {1}, 10);
  const HostRoutes routes = RoutesOfMix(demands, {.parts = {{}}});
  EXPECT_THAT(routes.first_piece, ElementsAre(0, 0));
}

TEST(RackRoutesTest, LoadsCountWhatEntersRacks) {
  Demands demands;
  Add(demands, {0}, {1}, 6);
  Add(demands, {0}, {1, 2}, 10);
  const std::vector<HostHop> chain = {{0, 0, 1}, {0, 1, 2}}, star = {{0, 0, 1}, {0, 0, 2}};
  const HostRoutes routes = RoutesOfMix(demands, {.parts = {{}, {{0.5, chain}, {0.5, star}}}});
  const RouteLoad load = LoadOfRoutes(demands, routes, TwoRacks());
  EXPECT_EQ(load.busiest_seconds, 21);  // out of a
  EXPECT_EQ(load.crossing_bytes, 21);
  EXPECT_EQ(LeastCrossingBytes(demands, TwoRacks()), 16);
}

}  // namespace
}  // namespace crossmesh
