#include "planner/redistribute/planning/lowering.h"

#include "common/mesh/layout.h"
#include "common/plan/step_kind.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/redistribution_search.h"
#include "planner/redistribute/testing/redistribution_study.h"
#include "planner/redistribute/testing/redistribution_vectors.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;

RedistributionEnd End(absl::string_view text, const std::vector<Axis>& axes,
                      const std::vector<std::string>& partial = {},
                      PartialReduction reduction = PartialReduction::kSum) {
  return EndOf(*ParseLayout(text), axes, partial, reduction).value();
}

Derivation Derive(const RedistributionRequest& request, bool relay = false) {
  return SearchRedistribution(request,
                              {.objective = RedistributionObjective::kBytes, .relay = relay})
      .value()
      .derivation;
}

TEST(Lowering, EveryStepOfAllPairsOfSmallMeshesIsAMove) {
  int64_t pairs = 0;
  int64_t direct = 0;
  for (const StudiedMesh& mesh : StudiedMeshes()) {
    for (size_t from = 0; from < mesh.layouts.size(); ++from) {
      for (size_t to = 0; to < mesh.layouts.size(); ++to) {
        if (from == to) continue;
        const Derivation derivation = Derive(mesh.Request(from, to));
        const Lowering lowering(derivation);
        ++pairs;
        direct += lowering.is_direct() ? 1 : 0;
        ASSERT_OK(lowering.Steps(1).status());
        ASSERT_LE(lowering.step_count(), std::max(1, derivation.communicating_steps()));
      }
    }
  }
  EXPECT_EQ(pairs, 7618);
  EXPECT_EQ(direct, 0);
}

// What a step is by its table, as workers count it.
StepKind KindOf(const LoweredStep& step, const Lowering& lowering) {
  int64_t devices = 1;
  for (const Axis& axis : lowering.axes()) devices *= axis.size;
  const Mesh mesh =
      Mesh::Create(lowering.axes(), *ParseDevices(absl::StrCat("a.0-", devices - 1))).value();
  TensorTable::Spec spec;
  spec.sources = {{mesh, Layout(step.source)}};
  spec.destinations = {{mesh, Layout(step.destination)}};
  spec.groups = {{.shape = step.shape, .slab = step.slab}};
  spec.group_of_tensor = {0};
  return FindStepKind(TensorTable::Create(std::move(spec)).value(), step.reduction);
}

// Those of the steps of a derivation, as they are carried out.
std::vector<StepKind> KindsOf(const Derivation& derivation) {
  std::vector<StepKind> kinds;
  for (const RedistributionStep& step : derivation.steps()) {
    if (step.kind != StepKind::kSlice) kinds.push_back(step.kind);
  }
  if (kinds.empty()) kinds.push_back(StepKind::kSlice);
  return kinds;
}

TEST(Lowering, WorkersSeeWhatEachStepIs) {
  int64_t steps = 0;
  for (const StudiedMesh& mesh : StudiedMeshesWithSums()) {
    for (size_t from = 0; from < mesh.layouts.size(); ++from) {
      for (size_t to = 0; to < mesh.layouts.size(); ++to) {
        const RedistributionRequest request = mesh.Request(from, to);
        // A part of them, since each is searched for.
        if (from == to || (from + to) % 5 != 0 || !Validate(request).ok()) continue;
        const Derivation derivation = Derive(request);
        const std::vector<StepKind> kinds = KindsOf(derivation);
        const Lowering lowering(derivation);
        ASSERT_OK_AND_ASSIGN(const std::vector<LoweredStep> lowered, lowering.Steps(1));
        // An all-reduce is two steps.
        if (std::ranges::count(kinds, StepKind::kAllReduce) > 0) continue;
        ASSERT_EQ(lowered.size(), kinds.size()) << derivation.Text();
        for (size_t k = 0; k < kinds.size(); ++k, ++steps) {
          ASSERT_EQ(StepKindName(KindOf(lowered[k], lowering)), StepKindName(kinds[k]))
              << "step " << k << " of " << derivation.Text();
        }
      }
    }
  }
  EXPECT_GT(steps, 500);
}

TEST(Lowering, EveryVectorIsAMoveOfEachStep) {
  for (const RedistributionVector& vector : RedistributionVectors()) {
    const Derivation derivation = Derive(vector.request);
    const Lowering lowering(derivation);
    EXPECT_FALSE(lowering.is_direct()) << vector.id;
    EXPECT_OK(lowering.Steps(1).status()) << vector.id;
  }
}

TEST(Lowering, AStridedCutIsADimensionOfItsOwn) {
  // Over two nodes of four GPUs, the node's axis is gathered first.
  const std::vector<Axis> axes = {{"node", 2}, {"gpu", 4}};
  const RedistributionRequest request{.axes = axes,
                                      .shape = *ParseShape("[16, 6]"),
                                      .item_bytes = 4,
                                      .source = End("[node*gpu, -]", axes),
                                      .destination = End("[-, -]", axes)};
  const TypeSpace space(request, {{2}, {4}});
  LocalType middle = space.source();
  middle.dimensions[0] = {{.atom = 1, .stride = 2}};
  std::vector<RedistributionStep> steps;
  steps.push_back(MakeStep(space, StepKind::kAllGather, {space.source(), middle}).value());
  steps.push_back(MakeStep(space, StepKind::kAllGather, {middle, space.destination()}).value());
  const Derivation derivation(std::make_shared<const TypeSpace>(space), steps,
                              DerivationOrigin::kSearch);
  const Lowering lowering(derivation);
  ASSERT_OK_AND_ASSIGN(const std::vector<LoweredStep> lowered, lowering.Steps(1));
  ASSERT_EQ(lowered.size(), 2);
  EXPECT_EQ(ToString(lowered[0].shape), "[2, 4, 12]");
  EXPECT_EQ(ToString(Layout(lowered[0].source)), "[a0, a1, -]");
  EXPECT_EQ(ToString(Layout(lowered[0].destination)), "[-, a1, -]");
  EXPECT_EQ(ToString(lowered[1].shape), "[2, 4, 12]");
  EXPECT_EQ(ToString(Layout(lowered[1].destination)), "[-, -, -]");
  // Rows of a device can be cut into slabs, and so can the columns of all of them.
  EXPECT_EQ(lowering.slab_place().length, 12);
  EXPECT_EQ(lowering.array_bytes(), 2 * 4 * 12 * 4 / 4);
  EXPECT_EQ(lowering.summands(), 1);
  ASSERT_OK_AND_ASSIGN(const std::vector<LoweredStep> slabs, lowering.Steps(3));
  EXPECT_EQ(ToString(slabs[0].shape), "[2, 4, 4]");
  EXPECT_EQ(slabs[0].slab.row_dimension, 2);
  EXPECT_EQ(slabs[0].slab.slabs, 3);
}

TEST(Lowering, AnAllReduceReducesPartsAndGathersThem) {
  const std::vector<Axis> axes = {{"x", 4}};
  const RedistributionRequest request{.axes = axes,
                                      .shape = *ParseShape("[8, 8]"),
                                      .item_bytes = 4,
                                      .source = End("[-, -]", axes, {"x"}, PartialReduction::kMean),
                                      .destination = End("[-, -]", axes)};
  const Derivation derivation = Derive(request);
  const Lowering lowering(derivation);
  ASSERT_OK_AND_ASSIGN(const std::vector<LoweredStep> steps, lowering.Steps(1));
  ASSERT_EQ(steps.size(), 2);
  EXPECT_EQ(ToString(steps[0].shape), "[2, 2, 2, 2, 16]");
  EXPECT_EQ(ToString(Layout(steps[0].source)), "[a0, a1, -, -, -]");
  EXPECT_EQ(ToString(Layout(steps[0].destination)), "[-, -, a0, a1, -]");
  EXPECT_EQ(steps[0].slab.summand_dimensions, 2);
  EXPECT_EQ(steps[0].reduction, (Reduction{.divisor = 4}));
  EXPECT_EQ(lowering.summands(), 4);
  EXPECT_EQ(steps[1].reduction, std::nullopt);
  EXPECT_EQ(KindOf(steps[0], lowering), StepKind::kReduceScatter);
  EXPECT_EQ(KindOf(steps[1], lowering), StepKind::kAllGather);
  EXPECT_EQ(ToString(Layout(steps[1].source)), "[a0, a1, -]");
  EXPECT_EQ(ToString(Layout(steps[1].destination)), "[-, -, -]");
}

TEST(Lowering, WhatStaysPartialIsADimensionThatIsCutOnBothSides) {
  const std::vector<Axis> axes = {{"x", 2}, {"y", 2}};
  const RedistributionRequest request{.axes = axes,
                                      .shape = *ParseShape("[8, 8]"),
                                      .item_bytes = 4,
                                      .source = End("[-, -]", axes, {"x", "y"}),
                                      .destination = End("[y, -]", axes, {"x"})};
  const Derivation derivation = Derive(request);
  const Lowering lowering(derivation);
  ASSERT_OK_AND_ASSIGN(const std::vector<LoweredStep> steps, lowering.Steps(1));
  ASSERT_EQ(steps.size(), 1);
  EXPECT_EQ(ToString(steps[0].shape), "[2, 2, 2, 32]");
  EXPECT_EQ(ToString(Layout(steps[0].source)), "[a0, a1, -, -]");
  EXPECT_EQ(ToString(Layout(steps[0].destination)), "[a0, -, a1, -]");
  EXPECT_EQ(steps[0].slab.summand_dimensions, 2);
}

TEST(Lowering, ADimensionOfOneElementKeepsItsCuts) {
  const std::vector<Axis> axes = {{"x", 2}, {"y", 3}};
  const RedistributionRequest request{.axes = axes,
                                      .shape = *ParseShape("[6, 1, 5]"),
                                      .item_bytes = 4,
                                      .source = End("[-, y*x, -] balanced", axes),
                                      .destination = End("[x, -, -]", axes)};
  const Derivation derivation = Derive(request, /*relay=*/true);
  const Lowering lowering(derivation);
  ASSERT_OK_AND_ASSIGN(const std::vector<LoweredStep> steps, lowering.Steps(5));
  ASSERT_EQ(steps.size(), 1);
  EXPECT_EQ(ToString(steps[0].shape), "[1, 2, 3]");
  EXPECT_EQ(ToString(Layout(steps[0].source)), "[a1*a0, -, -] balanced");
  EXPECT_EQ(ToString(Layout(steps[0].destination)), "[-, a0, -]");
  EXPECT_EQ(steps[0].slab.row_dimension, 2);
}

TEST(Lowering, SlabsThatThereAreNotAreRefused) {
  const std::vector<Axis> axes = {{"x", 2}};
  const RedistributionRequest request{.axes = axes,
                                      .shape = *ParseShape("[4, 6]"),
                                      .item_bytes = 4,
                                      .source = End("[x, -]", axes),
                                      .destination = End("[-, x]", axes)};
  const Derivation derivation = Derive(request);
  const Lowering lowering(derivation);
  EXPECT_THAT(lowering.Steps(5), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace crossmesh
