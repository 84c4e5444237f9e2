#include "common/plan/step_kind.h"

#include "common/mesh/reduction.h"
#include "common/plan/tensor_table.h"
#include "common/plan/testing/tables.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr char kMesh[] = "x=2,y=2,z=3 on a.0-11";

// Of "[8, 6]: [x, -] -> [-, -]", whose first dimensions, so many, number summands.
TensorTable TableOfStep(const std::string& step, int32_t summands = 0) {
  const std::string text = absl::StrReplaceAll(
      step, {{": ", absl::StrCat(": ", kMesh, " ")}, {"-> ", absl::StrCat("-> ", kMesh, " ")}});
  TensorTable::Spec spec = TableOf({TensorOf(text)}).spec();
  spec.groups[0].slab = {.summand_dimensions = summands, .row_dimension = summands};
  return TensorTable::Create(std::move(spec)).value();
}

std::string KindOf(const std::string& step) {
  return std::string(StepKindName(FindStepKind(TableOfStep(step), std::nullopt)));
}

std::string KindOfSums(const std::string& step, int32_t summands) {
  return std::string(StepKindName(FindStepKind(TableOfStep(step, summands), Reduction{})));
}

TEST(StepKind, IsWhatBecomesOfTheAxesThatCut) {
  EXPECT_EQ(KindOf("[8, 6]: [x, -] -> [x, -]"), "slice");
  EXPECT_EQ(KindOf("[8, 6]: [x, -] -> [x*y, z]"), "slice");
  EXPECT_EQ(KindOf("[8, 6]: [x*y, -] -> [x, -]"), "all_gather");
  EXPECT_EQ(KindOf("[8, 6]: [x*y, -] -> [-, -]"), "all_gather");
  EXPECT_EQ(KindOf("[8, 6]: [x, -] -> [-, x]"), "all_to_all");
  EXPECT_EQ(KindOf("[4, 4, 8]: [x, y, -] -> [-, -, x*y]"), "all_to_all");
  EXPECT_EQ(KindOf("[8, 6]: [x, -] -> [y, -]"), "permute");
  EXPECT_EQ(KindOf("[8, 8]: [x, y] -> [y, x]"), "permute");
  EXPECT_EQ(KindOf("[6, 6]: [x, -] -> [z, -]"), "relay") << "blocks of other lengths";
  EXPECT_EQ(KindOf("[6, 6]: [x, z] -> [z, x]"), "relay");
}

TEST(StepKind, SlicesThatAreDoneAlongDoNotCount) {
  EXPECT_EQ(KindOf("[8, 6]: [x, -] -> [-, z]"), "all_gather");
  EXPECT_EQ(KindOf("[4, 4, 3]: [x, -, -] -> [-, x, z]"), "all_to_all");
}

TEST(StepKind, KindsAtOnceAreARelay) {
  EXPECT_EQ(KindOf("[8, 8]: [x, y] -> [-, x]"), "relay");
  EXPECT_EQ(KindOf("[8, 8, 8]: [x, y, -] -> [-, -, x]"), "relay") << "y is gathered";
  EXPECT_EQ(KindOf("[8, 6]: [x, -] -> [z, -] chunk"), "relay");
  EXPECT_EQ(KindOf("[7, 6]: [x, -] chunk -> [-, -]"), "relay") << "pieces of other lengths";
  EXPECT_EQ(KindOf("[7, 6]: [x, y] chunk -> [x, -] chunk"), "all_gather") << "of what is even";
  EXPECT_EQ(KindOf("[7, 6]: [x, -] chunk -> [x, -] balanced"), "slice") << "as it was";
}

TEST(StepKind, SumsAreScatteredOverTheAxesThatHadSummands) {
  EXPECT_EQ(KindOfSums("[2, 8, 6]: [x, -, -] -> [-, x, -]", 1), "reduce_scatter");
  EXPECT_EQ(KindOfSums("[2, 8, 6]: [x, -, -] -> [-, -, -]", 1), "all_reduce");
  EXPECT_EQ(KindOfSums("[2, 8, 6]: [x, -, -] -> [-, y, -]", 1), "all_reduce");
  EXPECT_EQ(KindOfSums("[2, 2, 8, 6]: [x, y, -, -] -> [-, y, x, -]", 2), "reduce_scatter");
}

TEST(StepKind, TensorsOfOtherKindsAreARelay) {
  const std::string gather = absl::StrCat("[8, 6]: ", kMesh, " [x, -] -> ", kMesh, " [-, -]");
  const std::string exchange = absl::StrCat("[8, 6]: ", kMesh, " [x, -] -> ", kMesh, " [-, x]");
  EXPECT_EQ(FindStepKind(TableOf({TensorOf(gather), TensorOf(gather)}), std::nullopt),
            StepKind::kAllGather);
  EXPECT_EQ(FindStepKind(TableOf({TensorOf(gather), TensorOf(exchange)}), std::nullopt),
            StepKind::kRelay);
  const std::string other_mesh =
      absl::StrCat("[8, 6]: ", kMesh, " [x, -] -> x=12 on a.0-11 [-, -]");
  EXPECT_EQ(FindStepKind(TableOf({TensorOf(other_mesh)}), std::nullopt), StepKind::kRelay);
}

}  // namespace
}  // namespace crossmesh
