#include "common/plan/own_summand.h"

#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// A ring's step, of which a proof sees the table alone.
struct RingMove {
  const TensorTable& tensors() const { return table; }
  TensorTable table;
};

constexpr Slab kSummands{.summand_dimensions = 1, .row_dimension = 1};

TensorTable RingTable(const std::string& text, const Slab& slab = kSummands) {
  TensorTable::Spec spec = TableOf({TensorOf(text)}).spec();
  spec.groups[0].slab = slab;
  return TensorTable::Create(std::move(spec)).value();
}

// Tiles of three devices, as steps of [3, 6] have them.
constexpr char kHeld[] = "{[0:1, 0:6]; [1:2, 0:6]; [2:3, 0:6]}";
constexpr char kOnce[] = "{[2:3, 2:4]; [0:1, 4:6]; [1:2, 0:2]}";
constexpr char kTwice[] = "{[1:2, 0:2]; [2:3, 2:4]; [0:1, 4:6]}";

// Devices with six summands, each of which gets two of the sums.
class RingOfSums : public testing::Test {
 protected:
  RingOfSums() { course_.tensors = {0}; }

  void AddStep(TensorTable table, Reduction reduction = {}) {
    course_.steps.push_back({.move = std::make_shared<const RingMove>(RingMove{std::move(table)}),
                             .reduction = reduction,
                             .adds_own = true});
  }
  void AddStep(const std::string& before, const std::string& after, Reduction reduction = {}) {
    AddStep(RingTable("[3, 6]: x=3 on a.0-2 " + before + " -> x=3 on a.0-2 " + after), reduction);
  }
  absl::Status Prove() const { return ProveCourses(whole_, std::vector{CourseTables(course_)}); }
  void ExpectRefused(const std::string& why) const {
    EXPECT_THAT(Prove(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  }

  TensorTable whole_ = RingTable("[6]: x=3 on a.0-2 [-] -> x=3 on a.0-2 [x]", {});
  Course<RingMove> course_;
};

TEST_F(RingOfSums, SumsOfAllSummandsAreProven) {
  AddStep(kHeld, kOnce);
  AddStep(kOnce, kTwice, {.divisor = 3});
  EXPECT_OK(Prove());
}

TEST_F(RingOfSums, ARoundThatIsLeftOutIsMissed) {
  whole_ = RingTable("[6]: x=3 on a.0-2 [-] -> x=3 on a.0-2 {[2:4]; [4:6]; [0:2]}", {});
  AddStep(kHeld, kOnce);
  ExpectRefused("step 0, tensor 0, device a.0: expected the summands of all 3, found 2");
}

TEST_F(RingOfSums, ASummandIsNotAddedTwice) {
  AddStep(kHeld, kOnce);
  // Each piece goes back to where it began.
  AddStep(kOnce, "{[0:1, 4:6]; [1:2, 0:2]; [2:3, 2:4]}");
  ExpectRefused("step 1, tensor 0, device a.0: expected a sum without its own summand");
}

TEST_F(RingOfSums, StepsInAnotherOrderAreRefused) {
  AddStep(kOnce, kTwice);
  AddStep(kHeld, kOnce);
  ExpectRefused("step 0, tensor 0, device a.0: expected its own summand of the piece");
}

TEST_F(RingOfSums, WhatComesIsWhatOneDeviceHas) {
  AddStep(kHeld, kOnce);
  AddStep(kOnce, "{[1:2, 2:4]; [2:3, 2:4]; [0:1, 4:6]}");
  ExpectRefused("step 1, tensor 0, device a.0: expected what one device has, and no other one");
}

// Which of two sums of a piece comes is not known, if both began with one summand.
TEST_F(RingOfSums, SumsThatCannotBeToldApartAreRefused) {
  constexpr char kTwoOfOne[] = "{[2:3, 2:4]; [0:1, 4:6]; [0:1, 4:6]}";
  AddStep(kHeld, kTwoOfOne);
  AddStep(kTwoOfOne, "{[0:1, 4:6]; [2:3, 2:4]; [2:3, 2:4]}");
  ExpectRefused("step 1, tensor 0, device a.0: expected what one device has, and no other one");
}

TEST_F(RingOfSums, WhatOneDeviceHasAPartOfDoesNotCome) {
  AddStep(kHeld, kOnce);
  AddStep(kOnce, "{[1:2, 0:3]; [2:3, 2:4]; [0:1, 4:6]}");
  ExpectRefused("step 1, tensor 0, device a.0: expected what one device has, and no other one");
}

TEST_F(RingOfSums, AllSummandsAtOnceAreNoStepOfARing) {
  AddStep(kHeld, "{[0:3, 0:2]; [0:3, 2:4]; [0:3, 4:6]}");
  ExpectRefused("step 0, tensor 0, device a.0: expected one summand, or one sum, in a tile");
}

// In another shape the same box is another piece of the source tile.
TEST_F(RingOfSums, AnotherShapeIsRefused) {
  AddStep(kHeld, kOnce);
  AddStep(
      RingTable("[3, 3, 2]: x=3 on a.0-2 {[2:3, 1:2, 0:2]; [0:1, 2:3, 0:2]; [1:2, 0:1, 0:2]} "
                "-> x=3 on a.0-2 {[1:2, 0:1, 0:2]; [2:3, 1:2, 0:2]; [0:1, 2:3, 0:2]}"));
  ExpectRefused("step 1, tensor 0: expected the shape and the rows of the first step");
}

TEST_F(RingOfSums, StepsOfAnotherKindAreRefused) {
  AddStep(kHeld, kOnce, {.divisor = 3});
  AddStep(kOnce, kTwice);
  ExpectRefused("step 0, tensor 0: expected one kind of reduction round a ring, which divides");
  course_.steps[0].reduction = Reduction{};
  course_.steps[1].reduction = Reduction{.kind = ReductionKind::kMax};
  ExpectRefused("step 1, tensor 0: expected one kind of reduction");
  course_.steps[1].reduction = std::nullopt;
  ExpectRefused("step 1, tensor 0: expected a reduction, and no collective");
  course_.steps[1].reduction = Reduction{};
  course_.steps[0].adds_own = false;
  ExpectRefused("step 1, tensor 0: expected steps that add own summands before all others");
}

// The source is read until the end of the ring.
TEST_F(RingOfSums, TheSourceStays) {
  AddStep(kHeld, kOnce);
  AddStep(kOnce, kTwice);
  const std::vector courses = {CourseTables(course_)};
  EXPECT_OK(ProveOwnSummandsStay(courses, BindingMode::kShadow, true));
  EXPECT_OK(ProveOwnSummandsStay(courses, BindingMode::kInPlace, false));
  EXPECT_THAT(
      ProveOwnSummandsStay(courses, BindingMode::kInPlace, true),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("in_place of one storage")));
  course_.releases_source = true;
  ExpectRefused("step 0, tensor 0: expected a source that stays, found one that is released");
}

std::optional<OwnSummand> Find(const std::string& piece, const Slab& slab) {
  const TensorTable table = RingTable(
      "[2, 4, 3, 10]: x=2 on a.0-1 [x, -, -, -] -> x=2 on a.0-1 {[0:1, 0:4, 0:3, 0:10]; " + piece +
          "}",
      slab);
  return FindOwnSummand(table, table, 0, 1);
}

// Of F32: 40 bytes, 3 of them in a row of 120, and 4 of these.
TEST(OwnSummand, LiesInRunsOfTheSourceTile) {
  EXPECT_EQ(Find("[0:1, 2:3, 0:3, 0:10]", kSummands),
            (OwnSummand{.first = 240, .run_bytes = 120, .pitch = 120}));
  EXPECT_EQ(Find("[0:1, 0:4, 1:2, 0:10]", kSummands),
            (OwnSummand{.first = 40, .run_bytes = 40, .pitch = 120}));
  EXPECT_EQ(Find("[0:1, 0:4, 0:3, 5:7]", kSummands),
            (OwnSummand{.first = 20, .run_bytes = 8, .pitch = 40}));
  EXPECT_EQ(Find("[0:1, 0:4, 0:2, 5:7]", kSummands), std::nullopt);
}

// Of 8 slabs a row of the first dimension's is followed by those of the others.
TEST(OwnSummand, OtherSlabsLieBetweenRows) {
  const Slab slab{.summand_dimensions = 1, .row_dimension = 2, .slabs = 8, .in_source = true};
  EXPECT_EQ(Find("[0:1, 2:3, 0:3, 0:10]", slab),
            (OwnSummand{.first = 1920, .run_bytes = 120, .pitch = 120}));
  EXPECT_EQ(Find("[0:1, 2:4, 0:3, 0:10]", slab),
            (OwnSummand{.first = 1920, .run_bytes = 120, .pitch = 960}));
}

std::optional<int64_t> OwnIndex(const std::string& text, DeviceRank device) {
  return FindOwnIndex(RingTable(text, {.summand_dimensions = 2, .row_dimension = 2}), 0, device);
}

TEST(FindOwnIndex, CountsTheSummandsThatCome) {
  const std::string text =
      "[2, 3, 6]: x=2 on a.0-1 {[1:2, 0:1, 0:6]; [0:1, 2:3, 0:6]} -> x=2 on a.0-1 ";
  EXPECT_EQ(OwnIndex(text + "{[0:2, 0:3, 0:2]; [0:2, 0:3, 2:4]}", 0), 3);
  EXPECT_EQ(OwnIndex(text + "{[0:2, 0:3, 0:2]; [0:2, 0:3, 2:4]}", 1), 2);
  EXPECT_EQ(OwnIndex(text + "{[1:2, 0:3, 0:2]; [0:1, 1:3, 2:4]}", 0), 0);
  EXPECT_EQ(OwnIndex(text + "{[1:2, 0:3, 0:2]; [0:1, 1:3, 2:4]}", 1), 1);
}

TEST(FindOwnIndex, NoneOrSeveralHaveNone) {
  EXPECT_EQ(OwnIndex("[2, 3, 6]: x=2 on a.0-1 {[1:2, 0:1, 0:6]; [0:1, 1:3, 0:6]} -> x=2 on a.0-1 "
                     "{[0:1, 0:3, 0:2]; [0:2, 0:3, 2:4]}",
                     0),
            std::nullopt);
  EXPECT_EQ(OwnIndex("[2, 3, 6]: x=2 on a.0-1 {[1:2, 0:1, 0:6]; [0:1, 1:3, 0:6]} -> x=2 on a.0-1 "
                     "{[0:1, 0:3, 0:2]; [0:2, 0:3, 2:4]}",
                     1),
            std::nullopt);
}

}  // namespace
}  // namespace crossmesh
