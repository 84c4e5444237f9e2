#include "planner/redistribute/step.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/atom_sizes.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;

// x=2, y=2, z=3 over 12x12 of 4 bytes. Atoms 0, 1, 2.
class StepTest : public testing::Test {
 protected:
  static RedistributionRequest Request() {
    RedistributionRequest request{.axes = {{"x", 2}, {"y", 2}, {"z", 3}}, .item_bytes = 4};
    request.shape = *Shape::Create(std::vector<int64_t>{12, 12});
    request.source.dimensions = {{}, {}};
    request.destination.dimensions = {{}, {}};
    return request;
  }

  absl::StatusOr<RedistributionStep> Make(StepKind kind, const LocalType& before,
                                          const LocalType& after) const {
    return MakeStep(space_, kind, {before, after}, {.bytes = 10});
  }

  const TypeSpace space_{Request(), NeededAtoms(Request())};
  const LocalType whole_{.dimensions = {{}, {}}};
  const LocalType rows_{.dimensions = {{{0, 6}}, {}}};     // [x, -]
  const LocalType columns_{.dimensions = {{}, {{0, 6}}}};  // [-, x]
  const LocalType other_{.dimensions = {{{1, 6}}, {}}};    // [y, -]
  const LocalType sums_{.dimensions = {{}, {}}, .partial = {0}};
};

TEST_F(StepTest, EachKindReceivesWhatTheModelSays) {
  const auto received = [&](StepKind kind, const LocalType& before, const LocalType& after) {
    const absl::StatusOr<RedistributionStep> step = Make(kind, before, after);
    EXPECT_OK(step);
    return step.ok() ? step->bytes_received : -1;
  };
  EXPECT_EQ(received(StepKind::kSlice, whole_, rows_), 0);
  EXPECT_EQ(received(StepKind::kAllGather, rows_, whole_), 288);
  EXPECT_EQ(received(StepKind::kAllToAll, rows_, columns_), 144);
  EXPECT_EQ(received(StepKind::kPermute, rows_, other_), 288);
  EXPECT_EQ(received(StepKind::kReduceScatter, sums_, rows_), 288);
  EXPECT_EQ(received(StepKind::kAllReduce, sums_, whole_), 576);
  EXPECT_EQ(received(StepKind::kRelay, rows_, columns_), 144);
}

TEST_F(StepTest, LiveMemoryIsInAndOutAndStaging) {
  ASSERT_OK_AND_ASSIGN(const RedistributionStep slice, Make(StepKind::kSlice, whole_, rows_));
  EXPECT_EQ(slice.live_bytes, 576 + 288);
  ASSERT_OK_AND_ASSIGN(const RedistributionStep gather, Make(StepKind::kAllGather, rows_, whole_));
  EXPECT_EQ(gather.live_bytes, 288 + 576 + 10);
  EXPECT_EQ(gather.group, 2);
  EXPECT_THAT(gather.atoms, ElementsAre(0));
}

TEST_F(StepTest, WhatAKindCannotDoIsRefused) {
  EXPECT_THAT(Make(StepKind::kSlice, rows_, whole_),
              IsRefused("slice: expected atoms that change"));
  EXPECT_THAT(Make(StepKind::kAllGather, whole_, rows_), IsRefused("found [-, -] to [x, -]"));
  EXPECT_THAT(Make(StepKind::kAllReduce, rows_, whole_), IsRefused("all_reduce"));
  EXPECT_THAT(Make(StepKind::kRelay, sums_, rows_), IsRefused("expected the same partial atoms"));
  EXPECT_THAT(Make(StepKind::kPermute, rows_, columns_), IsRefused("expected the same blocks"));
  // Rows over x, columns over y change places: each digit is in use.
  const LocalType both{.dimensions = {{{0, 6}}, {{1, 6}}}};
  const LocalType swapped{.dimensions = {{{1, 6}}, {{0, 6}}}};
  EXPECT_THAT(Make(StepKind::kAllToAll, both, swapped),
              IsRefused("expected digits that were not in use"));
  // 2 at stride 6 and 3 at stride 4 share indices.
  const LocalType thirds{.dimensions = {{{2, 4}}, {}}};
  const LocalType crossed{.dimensions = {{{2, 4}, {0, 6}}, {}}};
  EXPECT_THAT(Make(StepKind::kSlice, thirds, crossed), IsRefused("that divide each other"));
  EXPECT_THAT(Make(StepKind::kSlice, whole_, {.dimensions = {{{0, 6}}, {{0, 6}}}}),
              IsRefused("expected x in one place, found 2"));
}

TEST_F(StepTest, APermuteKeepsBlocksWhereTheyAre) {
  // Devices are 6x + 3y + z. From rows over x to rows over y: those with x = y keep theirs.
  EXPECT_THAT(PermuteSources(space_, rows_, other_),
              ElementsAre(0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11));
  // Six blocks by 2*3 and by 3*2 are the same blocks.
  const LocalType by_two{.dimensions = {{{0, 6}, {2, 2}}, {}}};
  const LocalType by_three{.dimensions = {{{2, 4}, {0, 2}}, {}}};
  EXPECT_OK(Make(StepKind::kPermute, by_two, by_three));
  std::vector<int64_t> sources = PermuteSources(space_, by_two, by_three);
  std::ranges::sort(sources);
  for (size_t i = 0; i < sources.size(); ++i) EXPECT_EQ(sources[i], static_cast<int64_t>(i));
}

TEST_F(StepTest, TypesArePrintedWithStridesOnlyWhereTheyAreNeeded) {
  EXPECT_EQ(space_.Text(rows_), "[x, -]");
  EXPECT_EQ(space_.Text({.dimensions = {{{0, 6}, {2, 2}}, {{1, 1}}}}), "[x*z, y@1]");
  EXPECT_EQ(space_.Text(sums_), "[-, -] partial sum {x}");
}

}  // namespace
}  // namespace crossmesh
