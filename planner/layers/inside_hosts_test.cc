#include "planner/layers/inside_hosts.h"

#include "common/mesh/layout.h"
#include "common/testing/status_matchers.h"
#include "planner/layers/planned_layers.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Of 4 MB, two devices of each of two hosts.
struct SumsOrGathers {
  const char* source;
  const char* destination;
  std::vector<std::string> partial;
  int32_t transfers = 1;
};

// So many transfers at once, which the second op needs.
LayerProgram SharingProgram(const SumsOrGathers& of) {
  LayerProgram program;
  program.ranks.push_back(
      {.mesh = std::make_shared<const Mesh>(*ParseMesh("z=2,c=2 on a.0-1,b.0-1"))});
  program.ops = {{.name = "give"}, {.name = "need"}};
  const TensorSpec tensor{.name = "tensor",
                          .type = DataType::kF32,
                          .shape = *Shape::Create(std::vector<int64_t>{1000, 1000})};
  for (int32_t i = 0; i < of.transfers; ++i) {
    program.transfers.push_back({.name = std::to_string(i),
                                 .tensors = {{.tensor = tensor,
                                              .source = *ParseLayout(of.source),
                                              .destination = *ParseLayout(of.destination)}},
                                 .partial = of.partial,
                                 .messages = {{0, 1}}});
  }
  return program;
}

// A NIC of 100 MB/s.
Host HostNamed(const char* name) {
  return {.name = name,
          .nics = {{.name = "eth0",
                    .out_bytes_per_second = 100'000'000,
                    .in_bytes_per_second = 100'000'000}}};
}

std::vector<std::string> DeviceNames(const InsideHosts& inside) {
  std::vector<std::string> names;
  for (const DeviceId& device : inside.devices) names.push_back(ToString(device));
  return names;
}

// A half of 2 MB is reduced, and the other half gathered, each at the 10 GB/s that are assumed of
// host memory.
TEST(InsideHostsTest, ASumInsideHostsTakesWhatTheirMemoryTakes) {
  const LayerProgram program = SharingProgram({"[z, -]", "[z, -]", {"c"}});
  ASSERT_OK_AND_ASSIGN(const auto planned, PlanLayers(program, Topology()));
  EXPECT_NEAR(planned->transfers[0].seconds(), 200e-6, 1e-9);
  EXPECT_THAT(DeviceNames(planned->transfers[0].inside), ElementsAre("a.0", "a.1", "b.0", "b.1"));
  EXPECT_THAT(planned->transfers[0].ports, IsEmpty());
  EXPECT_NEAR(planned->run.seconds, 200e-6, 1e-9);
}

// The slowest host's, of which each of its devices has half.
TEST(InsideHostsTest, DevicesShareWhatTheirHostIsDescribedToExchange) {
  std::vector<Host> hosts = {HostNamed("a"), HostNamed("b")};
  hosts[0].local_bytes_per_second = 4'000'000'000;
  hosts[1].local_bytes_per_second = 8'000'000'000;
  ASSERT_OK_AND_ASSIGN(const Topology topology, Topology::Create(std::move(hosts), {}));
  ASSERT_OK_AND_ASSIGN(const auto planned,
                       PlanLayers(SharingProgram({"[z, -]", "[z, -]", {"c"}}), topology));
  EXPECT_NEAR(planned->transfers[0].seconds(), 1e-3, 1e-9);
}

TEST(InsideHostsTest, BetweenHostsThereIsNothingMore) {
  ASSERT_OK_AND_ASSIGN(const Topology topology,
                       Topology::Create({HostNamed("a"), HostNamed("b")}, {}));
  ASSERT_OK_AND_ASSIGN(const auto planned,
                       PlanLayers(SharingProgram({"[z, c]", "[-, c]", {}}), topology));
  const PlannedLayers::Transfer& transfer = planned->transfers[0];
  EXPECT_THAT(transfer.inside.devices, IsEmpty());
  EXPECT_EQ(transfer.seconds(), transfer.plan->figures().predicted_seconds);
}

// Of 4 MB halves are reduced inside a host, and quarters between hosts; then they are gathered.
TEST(InsideHostsTest, StepsInsideHostsComeBesideThoseBetweenThem) {
  ASSERT_OK_AND_ASSIGN(const Topology topology,
                       Topology::Create({HostNamed("a"), HostNamed("b")}, {}));
  ASSERT_OK_AND_ASSIGN(const auto planned,
                       PlanLayers(SharingProgram({"[-, -]", "[-, -]", {"z", "c"}}), topology));
  const PlannedLayers::Transfer& transfer = planned->transfers[0];
  ASSERT_TRUE(transfer.plan->has_courses());
  EXPECT_NEAR(transfer.inside.seconds, 400e-6, 1e-9);
  EXPECT_EQ(transfer.seconds(), transfer.plan->figures().predicted_seconds + 400e-6);
}

// A device gets 1 MB of the other host, and 2 MB inside its own.
TEST(InsideHostsTest, OfOneMoveWhatTakesLongerCounts) {
  const LayerProgram program = SharingProgram({"[z*c, -]", "[-, -]", {}});
  ASSERT_OK_AND_ASSIGN(const auto fast, PlanLayers(program, Topology()));
  ASSERT_FALSE(fast->transfers[0].plan->has_courses());
  EXPECT_NEAR(fast->transfers[0].seconds(), 200e-6, 1e-9);
  ASSERT_OK_AND_ASSIGN(const Topology topology,
                       Topology::Create({HostNamed("a"), HostNamed("b")}, {}));
  ASSERT_OK_AND_ASSIGN(const auto slow, PlanLayers(program, topology));
  EXPECT_EQ(slow->transfers[0].inside.seconds, 0);
  EXPECT_GE(slow->transfers[0].seconds(), 20e-3);
}

TEST(InsideHostsTest, WhatMovesInsideAHostAtOnceSharesItsMemory) {
  const LayerProgram program = SharingProgram({"[z, -]", "[z, -]", {"c"}, 3});
  ASSERT_OK_AND_ASSIGN(const auto planned, PlanLayers(program, Topology()));
  EXPECT_NEAR(planned->run.seconds, 3 * 200e-6, 1e-9);
}

// Their plans count links.
TEST(InsideHostsTest, OfGpusThereIsNothingMore) {
  std::vector<Host> hosts = {HostNamed("a"), HostNamed("b")};
  for (Host& host : hosts) {
    for (int32_t device = 0; device < 2; ++device) {
      host.gpus.push_back({.device = device,
                           .nic = "eth0",
                           .link_out_bytes_per_second = 1'000'000'000,
                           .link_in_bytes_per_second = 1'000'000'000,
                           .copy_bytes_per_second = 100'000'000'000});
    }
  }
  ASSERT_OK_AND_ASSIGN(const Topology topology, Topology::Create(std::move(hosts), {}));
  ASSERT_OK_AND_ASSIGN(const auto planned,
                       PlanLayers(SharingProgram({"[z, -]", "[z, -]", {"c"}, 2}), topology));
  const PlannedLayers::Transfer& transfer = planned->transfers[0];
  EXPECT_EQ(transfer.inside.seconds, 0);
  EXPECT_GE(transfer.seconds(), 2e-3);
  // But two at once share them.
  EXPECT_NEAR(planned->run.seconds, 2 * transfer.seconds(), 1e-9);
}

}  // namespace
}  // namespace crossmesh
