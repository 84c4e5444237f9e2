#include "planner/network/nic_lanes.h"

#include "common/base/check.h"
#include "common/plan/testing/tables.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;

using Nics = std::vector<Nic>;

// Ports of hosts a and b, in this order.
NicPorts PortsOf(Nics a, Nics b) {
  const TensorTable tensors = TableOf({{.shape = "[8]",
                                        .source_mesh = "x=1 on a.0",
                                        .source = "[-]",
                                        .destination_mesh = "y=1 on b.0",
                                        .destination = "[-]"}});
  const absl::StatusOr<Topology> topology =
      Topology::Create({{"a", std::move(a)}, {"b", std::move(b)}}, {});
  CHECK_OK(topology);
  return NicPorts(HostNetworkOf(tensors, *topology), *topology);
}

// From a to b: NIC of a, NIC of b, part.
std::vector<std::tuple<int, int, double>> Lanes(const NicPorts& ports) {
  std::vector<std::tuple<int, int, double>> lanes;
  for (const NicLane& lane : LanesBetween(ports, 0, 1)) {
    const auto number = [](std::span<const int32_t> all, int32_t port) {
      return static_cast<int>(std::ranges::find(all, port) - all.begin());
    };
    lanes.emplace_back(number(ports.out(0), lane.out_port), number(ports.in(1), lane.in_port),
                       lane.part);
  }
  return lanes;
}

TEST(NicLanesTest, EqualNicsHaveALaneEach) {
  const Nics two = {{"n0", 8, 8}, {"n1", 8, 8}};
  const NicPorts ports = PortsOf(two, two);
  EXPECT_THAT(Lanes(ports), ElementsAre(std::tuple(0, 0, 0.5), std::tuple(1, 1, 0.5)));
  EXPECT_EQ(LanesOfOneNic(ports), 1);
}

TEST(NicLanesTest, NicsLieBesideEachOtherByTheirPartsOfTheRate) {
  const NicPorts ports = PortsOf({{"n0", 4, 4}, {"n1", 12, 12}}, {{"n0", 1, 1}, {"n1", 1, 1}});
  EXPECT_THAT(Lanes(ports),
              ElementsAre(std::tuple(0, 0, 0.25), std::tuple(1, 0, 0.25), std::tuple(1, 1, 0.5)));
  EXPECT_EQ(LanesOfOneNic(ports), 2);
}

TEST(NicLanesTest, OneNicFeedsAllOfTheOtherHost) {
  const NicPorts ports =
      PortsOf({{"n0", 9, 9}}, {{"n0", 3, 3}, {"n1", 3, 3}, {"n2", 3, 3}, {"n3", 3, 3}});
  EXPECT_EQ(Lanes(ports).size(), 4u);
  EXPECT_EQ(LanesOfOneNic(ports), 4);
}

TEST(NicLanesTest, HostsWithOneNicHaveOneLane) {
  EXPECT_EQ(LanesOfOneNic(PortsOf({{"n0", 9, 1}}, {{"n0", 1, 9}})), 1);
}

}  // namespace
}  // namespace crossmesh
