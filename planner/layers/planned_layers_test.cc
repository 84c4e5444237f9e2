#include "planner/layers/planned_layers.h"

#include "common/mesh/layout.h"
#include "common/plan/course.h"
#include "common/testing/status_matchers.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kRate = 100'000'000;

Topology TwoHosts() {
  std::vector<Host> hosts;
  for (const char* name : {"a", "b", "x"}) {
    hosts.push_back(
        {.name = name,
         .nics = {{.name = "eth0", .out_bytes_per_second = kRate, .in_bytes_per_second = kRate}}});
  }
  return *Topology::Create(std::move(hosts), {});
}

LayerProgram::Tensor TensorOf(const char* name, const char* source, const char* destination) {
  const TensorSpec tensor{.name = name,
                          .type = DataType::kF32,
                          .shape = *Shape::Create(std::vector<int64_t>{1000, 1000})};
  return {
      .tensor = tensor, .source = *ParseLayout(source), .destination = *ParseLayout(destination)};
}

// Two layers on two devices of each of two hosts: the weights of both are gathered, and the output
// of either is summed.
LayerProgram TwoLayers() {
  LayerProgram program;
  program.ranks.push_back(
      {.mesh = std::make_shared<const Mesh>(*ParseMesh("z=2,c=2 on a.0-1,b.0-1"))});
  program.ops = {{.name = "begin"},
                 {.name = "layer0", .seconds = 0.1},
                 {.name = "layer1", .seconds = 0.1},
                 {.name = "end"}};
  const auto add = [&](const char* name, LayerProgram::Tensor tensor,
                       std::vector<LayerProgram::Message> messages) {
    program.transfers.push_back(
        {.name = name, .tensors = {std::move(tensor)}, .messages = std::move(messages)});
  };
  add("weights0", TensorOf("w0", "[z, c]", "[-, c]"), {{0, 1}});
  add("weights1", TensorOf("w1", "[z, c]", "[-, c]"), {{0, 2}});
  add("sum0", TensorOf("out", "[z, -]", "[z, -]"), {{1, 2}});
  add("sum1", TensorOf("out", "[z, -]", "[z, -]"), {{2, 3}});
  program.transfers[2].partial = program.transfers[3].partial = {"c"};
  return program;
}

std::vector<std::string> NamesOf(const std::vector<PortBytes>& ports) {
  std::vector<std::string> names;
  for (const PortBytes& port : ports) names.push_back(port.port);
  return names;
}

TEST(PlannedLayersTest, EqualTransfersShareAPlan) {
  ASSERT_OK_AND_ASSIGN(const auto planned, PlanLayers(TwoLayers(), TwoHosts()));
  ASSERT_EQ(planned->transfers.size(), 4);
  EXPECT_EQ(planned->plans(), 2);
  EXPECT_EQ(planned->transfers[0].plan, planned->transfers[1].plan);
  EXPECT_EQ(planned->transfers[2].plan, planned->transfers[3].plan);
  // A half of 4 MB, cut over two hosts and by columns, goes from each to the other: 1 MB for each
  // column, both ways.
  EXPECT_EQ(planned->transfers[0].network_bytes(), 4'000'000);
  EXPECT_THAT(NamesOf(planned->transfers[0].ports),
              ElementsAre("host a out", "host b out", "host a in", "host b in"));
  // Sums are over devices of one host.
  EXPECT_THAT(planned->transfers[2].ports, IsEmpty());
}

// What lies the same, and is reduced over the same axes by other operations, does not.
TEST(PlannedLayersTest, OtherReductionsHavePlansOfTheirOwn) {
  LayerProgram program = TwoLayers();
  program.transfers[3].reduction = ReductionKind::kMax;
  ASSERT_OK_AND_ASSIGN(const auto planned, PlanLayers(program, TwoHosts()));
  EXPECT_EQ(planned->plans(), 3);
  EXPECT_NE(planned->transfers[2].plan->id(), planned->transfers[3].plan->id());
}

TEST(PlannedLayersTest, SumsAreOneCourseOfOneInstance) {
  LayerProgram program = TwoLayers();
  program.transfers[2].partial = {"z"};
  program.transfers[2].tensors = {TensorOf("out", "[-, c]", "[-, c]")};
  ASSERT_OK_AND_ASSIGN(const auto planned, PlanLayers(program, TwoHosts()));
  const Plan& sum = *planned->transfers[2].plan;
  ASSERT_TRUE(sum.has_courses());
  ASSERT_EQ(sum.courses().size(), 1);
  EXPECT_EQ(sum.courses().front().instances, 1);
  EXPECT_EQ(sum.courses().front().buffers, 1);
  // Its ports are those of its steps: halves are reduced and gathered, 1 MB for each column in
  // each step.
  int64_t out = 0;
  for (const PortBytes& port : planned->transfers[2].ports) {
    if (port.port == "host a out") out = port.bytes;
  }
  EXPECT_EQ(out, 4'000'000);
}

// Round a ring of four hosts bytes would make three hops.
TEST(PlannedLayersTest, AGatherOverHostsKeepsOffTheRing) {
  LayerProgram program = TwoLayers();
  program.ranks[0].mesh = std::make_shared<const Mesh>(*ParseMesh("z=4,c=1 on a.0,b.0,c.0,d.0"));
  program.transfers.resize(1);
  ASSERT_OK_AND_ASSIGN(const auto planned, PlanLayers(program, Topology()));
  EXPECT_EQ(planned->transfers[0].plan->figures().depth, 1);
}

TEST(PlannedLayersTest, BetweenRanksTensorsAreResharded) {
  LayerProgram program = TwoLayers();
  program.ranks.push_back({.mesh = std::make_shared<const Mesh>(*ParseMesh("d=2 on x.0-1"))});
  program.ops.push_back({.name = "next", .rank = 1, .seconds = 0.1});
  program.transfers.push_back(
      {.name = "onward", .tensors = {TensorOf("out", "[z, -]", "[d, -]")}, .messages = {{2, 4}}});
  ASSERT_OK_AND_ASSIGN(const auto planned, PlanLayers(program, TwoHosts()));
  EXPECT_FALSE(planned->transfers[4].plan->has_courses());
  EXPECT_EQ(planned->transfers[4].network_bytes(), 4'000'000);
  EXPECT_DOUBLE_EQ(planned->run.ops[4].begin, planned->run.messages[4][0].end);
}

// Weights of both layers are asked for at once and share the NICs: 4 MB out of each host at 100
// MB/s. The first layer waits for all of it, and the second one for nothing but the sum.
TEST(PlannedLayersTest, TheRunIsThatOfSharedPorts) {
  ASSERT_OK_AND_ASSIGN(const auto planned, PlanLayers(TwoLayers(), TwoHosts()));
  const LayerTimeline& run = planned->run;
  const double gather = planned->transfers[0].seconds();
  EXPECT_GE(gather, 0.02);
  EXPECT_NEAR(run.ops[1].begin, 2 * gather, 1e-9);
  EXPECT_NEAR(run.exposures[0].exposed + run.exposures[1].exposed, 2 * gather, 1e-9);
  EXPECT_NEAR(run.ops[2].begin, run.ops[1].end + planned->transfers[2].seconds(), 1e-9);
  EXPECT_NEAR(run.seconds, 2 * gather + 0.2 + 2 * planned->transfers[2].seconds(), 1e-9);
}

TEST(PlannedLayersTest, MemoryIsThatOfAllBuffers) {
  LayerProgram program = TwoLayers();
  program.transfers[0].buffers = 3;
  ASSERT_OK_AND_ASSIGN(const auto planned, PlanLayers(program, TwoHosts()));
  // Of weights 1 MB and 2 MB, four times; of sums 2 MB and 2 MB twice, with the summands that lie
  // between the steps: both halves of what the device reduces, and what becomes of them.
  const int64_t weights = 4 * (1'000'000 + 2'000'000);
  const int64_t tiles = 2 * (2'000'000 + 2'000'000);
  const int64_t between = 2 * (2'000'000 + 1'000'000);
  ASSERT_EQ(planned->memory.size(), 1);
  EXPECT_EQ(planned->memory[0].bytes.value(), weights + tiles + between);

  program.ranks[0].device_bytes_max = planned->memory[0].bytes;
  EXPECT_OK(PlanLayers(program, TwoHosts()).status());
  *program.ranks[0].device_bytes_max -= ByteCount(1);
  EXPECT_THAT(PlanLayers(program, TwoHosts()).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("rank 0"), HasSubstr("26000000 bytes"))));
}

// A grid's axes may be of one.
TEST(PlannedLayersTest, MeshesWhoseAxesAreOfOneArePlannedToo) {
  LayerProgram program = TwoLayers();
  program.ranks[0].mesh = std::make_shared<const Mesh>(*ParseMesh("z=1,c=1 on a.0"));
  ASSERT_OK_AND_ASSIGN(const auto planned, PlanLayers(program, TwoHosts()));
  for (const PlannedLayers::Transfer& transfer : planned->transfers) {
    EXPECT_EQ(transfer.network_bytes(), 0);
  }
}

TEST(PlannedLayersTest, MemoryBeyondAllNumbersIsRefusedByALimitToo) {
  LayerProgram program = TwoLayers();
  program.ranks[0].mesh = std::make_shared<const Mesh>(*ParseMesh("z=1,c=1 on a.0"));
  program.ranks[0].device_bytes_max = ByteCount(int64_t{1} << 50);
  program.transfers.resize(1);
  program.transfers[0].buffers = 1 << 16;
  program.transfers[0].tensors[0].tensor.shape =
      *Shape::Create(std::vector<int64_t>{int64_t{1} << 40, 1 << 4});
  EXPECT_THAT(PlanLayers(program, TwoHosts()).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("4611686018427387904")));
}

TEST(PlannedLayersTest, WhatWorkersMustAgreeOnIsInTheId) {
  const auto id_of = [](const LayerProgram& program) {
    return PlanLayers(program, TwoHosts()).value()->id;
  };
  const Digest id = id_of(TwoLayers());
  EXPECT_EQ(id, id_of(TwoLayers()));
  LayerProgram other = TwoLayers();
  other.transfers[1].buffers = 2;
  EXPECT_NE(id, id_of(other));
  other = TwoLayers();
  other.transfers[1].messages = {{0, 3}};
  EXPECT_NE(id, id_of(other));
  other = TwoLayers();
  other.transfers[1].tensors[0].destination = *ParseLayout("[-, -]");
  EXPECT_NE(id, id_of(other));
}

// As if it were planned anew: the same id, memory and run.
TEST(PlannedLayersTest, AnotherOrderOfTheSameTransfersTakesTheirPlans) {
  ASSERT_OK_AND_ASSIGN(const auto first, PlanLayers(TwoLayers(), TwoHosts()));
  LayerProgram other = TwoLayers();
  other.ops.insert(other.ops.begin() + 2, {.name = "between", .seconds = 0.3});
  other.transfers[0].buffers = 2;
  other.transfers[1].messages = {{0, 3}};
  other.transfers[2].messages = {{1, 3}};
  other.transfers[3].messages = {{3, 4}};
  ASSERT_OK_AND_ASSIGN(const auto anew, PlanLayers(other, TwoHosts()));
  ASSERT_OK_AND_ASSIGN(const auto same, PlanLayersAs(*first, other));
  EXPECT_EQ(same->id, anew->id);
  EXPECT_NE(same->id, first->id);
  EXPECT_EQ(same->run.seconds, anew->run.seconds);
  EXPECT_EQ(same->memory[0].bytes, anew->memory[0].bytes);
  EXPECT_GT(same->memory[0].bytes, first->memory[0].bytes);
  for (size_t t = 0; t < first->transfers.size(); ++t) {
    EXPECT_EQ(same->transfers[t].plan, first->transfers[t].plan);
  }
}

TEST(PlannedLayersTest, PlansOfOtherTransfersAreNotTaken) {
  ASSERT_OK_AND_ASSIGN(const auto planned, PlanLayers(TwoLayers(), TwoHosts()));
  const auto refusal = [&](const LayerProgram& program) {
    const absl::Status status = PlanLayersAs(*planned, program).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  const auto changed = [&](auto change) {
    LayerProgram program = TwoLayers();
    change(program);
    return refusal(program);
  };
  EXPECT_THAT(changed([](auto& p) { p.transfers.pop_back(); }),
              HasSubstr("expected 4 transfers that are planned, found 3"));
  EXPECT_THAT(changed([](auto& p) { p.transfers[1].name = "w"; }),
              HasSubstr("expected transfer weights1 as it is planned, found w that differs"));
  EXPECT_THAT(
      changed([](auto& p) { p.transfers[1].tensors = {TensorOf("w1", "[z, c]", "[-, -]")}; }),
      HasSubstr("expected transfer weights1"));
  EXPECT_THAT(changed([](auto& p) { p.transfers[3].partial = {}; }), HasSubstr("transfer sum1"));
  EXPECT_THAT(changed([](auto& p) { p.transfers[3].reduction = ReductionKind::kMax; }),
              HasSubstr("transfer sum1"));
  EXPECT_THAT(changed([](auto& p) {
                p.ranks[0].mesh =
                    std::make_shared<const Mesh>(*ParseMesh("z=2,c=2 on a.0-1,x.0-1"));
              }),
              HasSubstr("transfer weights0"));
  EXPECT_THAT(changed([](auto& p) { p.ops.front().name = ""; }), HasSubstr("names of their own"));
  LayerProgram program = TwoLayers();
  program.ranks[0].device_bytes_max = ByteCount(1000);
  EXPECT_THAT(PlanLayersAs(*planned, program).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("rank 0")));
}

TEST(PlannedLayersTest, TensorsThatAreSummedInOtherStepsAreRefused) {
  LayerProgram program = TwoLayers();
  program.transfers[2].partial = {"z"};
  program.transfers[2].tensors = {TensorOf("whole", "[-, -]", "[-, -]"),
                                  TensorOf("part", "[-, -]", "[z, -]")};
  EXPECT_THAT(PlanLayers(program, TwoHosts()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("transfer sum0"),
                             HasSubstr("same steps together, found 2 groups"))));
}

}  // namespace
}  // namespace crossmesh
