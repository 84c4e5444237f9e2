#include "planner/redistribute/mesh_cost.h"

#include "common/mesh/gpu_host.h"
#include "common/testing/status_matchers.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// "x:(1)2 at 50 GB/s" of each link.
std::vector<std::string> LinksOf(const std::string& mesh_text, const Topology& topology) {
  const Mesh mesh = *ParseMesh(mesh_text);
  std::vector<std::string> links;
  for (const AxisLink& link : CostOfMesh(mesh, topology).links) {
    links.push_back(absl::StrCat(ToString(link.part, mesh.axes()), " at ",
                                 link.bytes_per_second / 1e9, " GB/s"));
  }
  return links;
}

TEST(MeshCostTest, AxesAreCutWhereTheyLeaveAHost) {
  const Topology hosts = *GpuHosts("h100x8", {"a", "b"});
  EXPECT_THAT(LinksOf("node=2,gpu=8 on a.0-7,b.0-7", hosts),
              ElementsAre("node at 50 GB/s", "gpu at 450 GB/s"));
  EXPECT_THAT(LinksOf("x=16 on a.0-7,b.0-7", hosts),
              ElementsAre("x:(1)2 at 50 GB/s", "x:(2)8 at 450 GB/s"));
  EXPECT_THAT(LinksOf("gpu=8,node=2 on a.0,b.0,a.1,b.1,a.2,b.2,a.3,b.3,a.4,b.4,a.5,b.5,a.6,b.6,a.7,"
                      "b.7",
                      hosts),
              ElementsAre("gpu at 450 GB/s", "node at 50 GB/s"));
  // Three devices of a and three of b: only pairs never leave a host along a part of the axis.
  EXPECT_THAT(LinksOf("x=6 on a.0-3,b.0-1", hosts),
              ElementsAre("x:(1)3 at 50 GB/s", "x:(3)2 at 450 GB/s"));
  EXPECT_THAT(LinksOf("x=2 on a.0,b.0", hosts), ElementsAre("x at 50 GB/s"));
  EXPECT_THAT(LinksOf("x=1 on a.0", hosts), IsEmpty());
}

TEST(MeshCostTest, WhatDevicesShareIsDividedAmongThem) {
  // All devices of a host are host memory, and use its one NIC of 12.5 GB/s.
  EXPECT_THAT(LinksOf("node=2,x=4 on a.0-3,b.0-3", Topology()),
              ElementsAre("node at 3.125 GB/s", "x at 10 GB/s"));
  // Two GPUs by one NIC.
  Host host = *GpuHost("h100x8", "a");
  host.gpus[1].nic = host.gpus[0].nic;
  const Topology shared = *Topology::Create({host, *GpuHost("h100x8", "b")}, {});
  EXPECT_THAT(LinksOf("node=2,gpu=2 on a.0-1,b.0-1", shared),
              ElementsAre("node at 25 GB/s", "gpu at 450 GB/s"));
  Host limited{.name = "a", .nics = {{"n", 1'000'000'000, 500'000'000, 0, 0}}};
  limited.local_bytes_per_second = 8'000'000'000;
  EXPECT_THAT(LinksOf("node=2,x=2 on a.0-1,b.0-1", *Topology::Create({limited}, {})),
              ElementsAre("node at 0.25 GB/s", "x at 4 GB/s"));
}

TEST(MeshCostTest, StepsAndMessagesOfGpusAreTheDescriptions) {
  const Topology hosts = *GpuHosts("h100x8", {"a", "b"});
  const CollectiveCost gpus = CostOfMesh(*ParseMesh("x=2 on a.0-1"), hosts);
  EXPECT_EQ(gpus.seconds_per_step, hosts.gpu_costs().step_seconds());
  EXPECT_EQ(gpus.links[0].seconds_per_message, hosts.gpu_costs().message_seconds());
  EXPECT_NE(CostOfMesh(*ParseMesh("x=2 on a.0,a.9"), hosts).seconds_per_step,
            hosts.gpu_costs().step_seconds())
      << "a.9 is host memory";
}

}  // namespace
}  // namespace crossmesh
