#include "planner/network/measured_topology.h"

#include "common/testing/status_matchers.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::vector<ProbePort> kPorts = {{"a", "e"}, {"b", "e"}, {"c", "e"}};

LinkFigures Link(int from, int to, int64_t rate, int64_t round_trip_ns = 400) {
  return {.link = {from, to},
          .received_bytes = 1,
          .bytes_per_second = rate,
          .round_trip_ns = round_trip_ns};
}

TEST(MeasuredTopologyTest, ANicHasTheBestOfItsLinksInEachDirection) {
  const std::vector<LinkFigures> links = {Link(0, 1, 10),      Link(1, 2, 20), Link(2, 0, 30),
                                          Link(0, 2, 15, 800), Link(1, 0, 5),  Link(2, 1, 7, 40)};
  ASSERT_OK_AND_ASSIGN(const Topology topology, MeasuredTopology(kPorts, links, Topology()));
  EXPECT_THAT(topology.hosts(),
              ElementsAre(Host{"a", {{"e", 15, 30, 100, 100}}}, Host{"b", {{"e", 20, 10, 100, 10}}},
                          Host{"c", {{"e", 30, 20, 10, 100}}}));
}

TEST(MeasuredTopologyTest, WhatProbesDoNotSeeStays) {
  ASSERT_OK_AND_ASSIGN(
      const Topology before,
      Topology::Create(
          {{"d", {{"x", 1, 2, 3, 4}}, {{0, "x", 1, 1, 1}}, 5},
           {"b", {{"e", 1, 1}, {"f", 1, 1}}, {{1, "f", 1, 1, 1}, {2, "e", 2, 2, 2}}, 6}},
          {{"r", {"b", "d"}, 7, 8}}, 9, {.launch_ns = {10, "x"}}));
  const std::vector<LinkFigures> links = {Link(0, 1, 10), Link(1, 2, 10), Link(2, 0, 10)};
  ASSERT_OK_AND_ASSIGN(const Topology topology, MeasuredTopology(kPorts, links, before));
  EXPECT_EQ(topology.hosts()[0], before.hosts()[0]);
  EXPECT_EQ(*topology.FindHost("b"), (Host{"b", {{"e", 10, 10, 100, 100}}, {{2, "e", 2, 2, 2}}, 6}))
      << "a GPU goes with its NIC";
  EXPECT_EQ(topology.racks(), before.racks());
  EXPECT_EQ(topology.assumed_bytes_per_second(), 9);
  EXPECT_EQ(topology.gpu_costs(), before.gpu_costs());
  EXPECT_THAT(HostsWithoutPort(kPorts, before), ElementsAre("d"));
}

TEST(MeasuredTopologyTest, ImpossibleFiguresAreRefusedWithTheLink) {
  for (const LinkFigures& bad :
       {Link(1, 2, 0), Link(1, 2, -5), Link(1, 2, Topology::kNicBytesPerSecondMax + 1),
        Link(1, 2, 1, -1), Link(1, 2, 1, 2 * Topology::kLatencyNsMax + 1)}) {
    EXPECT_THAT(CheckFigures(kPorts, bad),
                StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("link b/e to c/e: expected")));
    EXPECT_THAT(MeasuredTopology(kPorts, std::vector<LinkFigures>{bad}, Topology()).status(),
                StatusIs(absl::StatusCode::kOutOfRange));
  }
  EXPECT_OK(CheckFigures(kPorts, Link(1, 2, Topology::kNicBytesPerSecondMax)));
}

TEST(MeasuredTopologyTest, ANicThatWasNotMeasuredIsNamed) {
  const std::vector<LinkFigures> links = {Link(0, 1, 10), Link(1, 0, 10), Link(2, 0, 10)};
  EXPECT_THAT(
      MeasuredTopology(kPorts, links, Topology()).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("c/e"), HasSubstr("receives"))));
}

}  // namespace
}  // namespace crossmesh
