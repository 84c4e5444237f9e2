#include "common/plan/course_tables.h"

#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// A step's move, of which a course's proof sees the table alone.
struct TableMove {
  const TensorTable& tensors() const { return table; }
  TensorTable table;
};

// Tables with one group each, of as many tensors.
TensorTable Table(const std::string& text, int tensors = 1, const Slab& slab = {}) {
  const TensorText tensor = TensorOf(text);
  TensorTable::Spec spec = TableOf({tensor}).spec();
  spec.groups[0].slab = slab;
  spec.group_of_tensor.assign(tensors, 0);
  return TensorTable::Create(std::move(spec)).value();
}

struct Case {
  TensorTable whole = Table("[4, 6]: x=2 on a.0-1 [x, -] -> x=2 on a.0-1 [-, x]");
  Course<TableMove> course = {.tensors = {0}};

  void Add(TensorTable table, std::optional<Reduction> reduction = std::nullopt) {
    course.steps.push_back({.move = std::make_shared<const TableMove>(TableMove{std::move(table)}),
                            .reduction = reduction});
  }
  absl::Status Prove() const { return ProveCourses(whole, std::vector{CourseTables(course)}); }
};

constexpr char kGather[] = "[4, 6]: x=2 on a.0-1 [x, -] -> x=2 on a.0-1 [-, -]";
constexpr char kSlice[] = "[4, 6]: x=2 on a.0-1 [-, -] -> x=2 on a.0-1 [-, x]";

TEST(Course, StepsThatLeadFromEndToEndAreProven) {
  Case one;
  one.Add(Table(kGather));
  one.Add(Table(kSlice));
  EXPECT_OK(one.Prove());
}

// A step may see the array in another shape, if it is the same array.
TEST(Course, TheShapeOfAStepIsItsOwn) {
  Case one;
  one.Add(Table("[2, 12]: x=2 on a.0-1 [x, -] -> x=2 on a.0-1 [-, -]"));
  one.Add(Table("[4, 2, 3]: x=2 on a.0-1 [-, -, -] -> x=2 on a.0-1 [-, x, -]"));
  EXPECT_OK(one.Prove());
}

TEST(Course, AStepThatReadsSomethingElseIsRefused) {
  Case one;
  one.Add(Table(kSlice));
  one.Add(Table(kSlice));
  EXPECT_THAT(one.Prove(), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("course 0: step 0, tensor 0, device a.0: expected to "
                                              "read what the source tile holds")));
  Case other;
  other.Add(Table(kGather));
  other.Add(Table("[4, 6]: x=2 on a.0-1 [x, -] -> x=2 on a.0-1 [-, x]"));
  EXPECT_THAT(other.Prove(), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("step 1, tensor 0, device a.0: expected to read "
                                                "what the step before it left")));
}

TEST(Course, ACourseThatEndsElsewhereIsRefused) {
  Case one;
  one.Add(Table(kGather));
  EXPECT_THAT(one.Prove(), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("expected to fill the destination tile")));
}

// The same elements in another order of memory are something else.
TEST(Course, AnArrayInAnotherOrderIsRefused) {
  Case one;
  one.whole = Table("[4, 4]: x=2 on a.0-1 [-, -] -> x=2 on a.0-1 [-, -]");
  one.Add(
      Table("[4, 4]: x=2 on a.0-1 [-, -] -> x=2 on a.0-1 {[0:4, 0:2] [0:4, 2:4]; [0:4, 0:2] "
            "[0:4, 2:4]}"));
  EXPECT_THAT(one.Prove(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("one box")));
}

TEST(Course, EveryTensorIsTakenOnce) {
  Case one;
  one.whole = Table("[4, 6]: x=2 on a.0-1 [x, -] -> x=2 on a.0-1 [-, x]", 2);
  one.Add(Table(kGather));
  one.Add(Table(kSlice));
  EXPECT_THAT(one.Prove(), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("expected one with tensor 1, found none")));
  one.course.instances = 2;
  one.course.tensors = {0, 0};
  EXPECT_THAT(one.Prove(), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("tensor 0, slab 0: expected once, found again")));
  one.course.tensors = {0, 1};
  EXPECT_OK(one.Prove());
  one.course.tensors = {0, 2};
  EXPECT_THAT(one.Prove(), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("expected tensors that are moved, found 2")));
}

// Columns 0 to 2 and 3 to 5.
TEST(Course, EverySlabIsTakenOnce) {
  const Slab first{.row_dimension = 1, .slabs = 2, .in_source = true};
  const Slab last{.row_dimension = 1, .slabs = 2, .in_destination = true};
  Case one;
  one.whole = Table("[4, 6]: x=2 on a.0-1 [x, -] -> x=2 on a.0-1 [-, -]");
  one.Add(Table("[4, 3]: x=2 on a.0-1 [x, -] -> x=2 on a.0-1 [-, -]", 1, first));
  one.Add(Table("[4, 3]: x=2 on a.0-1 [-, -] -> x=2 on a.0-1 [-, -]", 1, last));
  EXPECT_THAT(one.Prove(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("tensor 0: expected all of its 2 slabs in one place, found 1")));
  one.course.instances = 2;
  one.course.buffers = 2;
  one.course.tensors = {0, 0};
  EXPECT_OK(one.Prove());
}

TEST(Course, SlabsOfAnotherPlaceAreRefused) {
  Case one;
  one.whole = Table("[4, 6]: x=2 on a.0-1 [x, -] -> x=2 on a.0-1 [-, -]");
  one.course.instances = 2;
  one.course.tensors = {0, 0};
  one.Add(Table("[4, 3]: x=2 on a.0-1 [x, -] -> x=2 on a.0-1 [-, -]", 1,
                {.row_dimension = 1, .slabs = 2, .in_source = true}));
  // Slabs of single columns.
  one.Add(Table("[4, 3]: x=2 on a.0-1 [-, -] -> x=2 on a.0-1 [-, -]", 1,
                {.row_dimension = 2, .slabs = 2, .in_destination = true}));
  EXPECT_THAT(one.Prove(), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("step 1, tensor 0: expected a slab of its type")));
}

// Devices with summands, each of which gets the sum of half the rows.
class ReducingCourse : public testing::Test {
 protected:
  static constexpr char kSummands[] = "[2, 4, 6]: x=2 on a.0-1 [x, -, -] -> x=2 on a.0-1 [-, x, -]";

  ReducingCourse() {
    case_.whole = Table("[4, 6]: x=2 on a.0-1 [-, -] -> x=2 on a.0-1 [x, -]");
    slab_.summand_dimensions = slab_.row_dimension = 1;
  }

  Case case_;
  Slab slab_;
};

TEST_F(ReducingCourse, SummandsThatAreAllThereAreReduced) {
  case_.Add(Table(kSummands, 1, slab_), Reduction{.kind = ReductionKind::kMax});
  EXPECT_OK(case_.Prove());
}

TEST_F(ReducingCourse, WithoutAReductionSummandsAreNotATile) {
  case_.Add(Table(kSummands, 1, slab_));
  EXPECT_THAT(case_.Prove(), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("expected one summand in a tile")));
}

TEST_F(ReducingCourse, SummandsThatLackAreMissed) {
  case_.Add(Table("[2, 4, 6]: x=2 on a.0-1 [x, -, -] -> x=2 on a.0-1 [x, -, -]", 1, slab_),
            Reduction{});
  EXPECT_THAT(case_.Prove(), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("expected summands to reduce")));
}

TEST_F(ReducingCourse, WhatHasNoSummandsCannotBeReduced) {
  Case one;
  one.Add(Table(kGather), Reduction{});
  one.Add(Table(kSlice));
  EXPECT_THAT(one.Prove(), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("step 0, tensor 0: expected summands to reduce")));
}

TEST_F(ReducingCourse, ADivisorIsASums) {
  case_.Add(Table(kSummands, 1, slab_), Reduction{.kind = ReductionKind::kMin, .divisor = 2});
  EXPECT_THAT(case_.Prove(), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(CourseMemory, ArraysOfOneInstanceTakeTurns) {
  Case one;
  one.whole = Table("[64, 2]: x=2 on a.0-1 [x, -] -> x=2 on a.0-1 [x, -]");
  one.Add(Table("[64, 2]: x=2 on a.0-1 [x, -] -> x=2 on a.0-1 [-, -]"));
  one.Add(Table("[64, 2]: x=2 on a.0-1 [-, -] -> x=2 on a.0-1 [-, x]"));
  one.Add(Table("[64, 2]: x=2 on a.0-1 [-, x] -> x=2 on a.0-1 [-, -]"));
  one.Add(Table("[64, 2]: x=2 on a.0-1 [-, -] -> x=2 on a.0-1 [x, -]"));
  ASSERT_OK(one.Prove());
  const CourseMemory memory(CourseTables(one.course), one.whole.devices()[0]);
  // 512 bytes and 256, of which two that follow each other are there at a time.
  EXPECT_EQ(memory.bytes(), 768);
  EXPECT_EQ(memory.Find(0, CourseMemory::Array::kMoved)->offset_of_tensor[0], 0);
  EXPECT_EQ(memory.Find(1, CourseMemory::Array::kMoved)->offset_of_tensor[0], 512);
  EXPECT_EQ(memory.Find(2, CourseMemory::Array::kMoved)->offset_of_tensor[0], 0);
  EXPECT_EQ(memory.Find(3, CourseMemory::Array::kMoved), nullptr);
}

TEST(CourseMemory, WithInstancesEveryArrayHasItsPlaceInEveryBuffer) {
  Case one;
  one.whole = Table("[64, 2]: x=2 on a.0-1 [x, -] -> x=2 on a.0-1 [x, -]", 4);
  one.course.instances = 4;
  one.course.buffers = 3;
  one.course.tensors = {0, 1, 2, 3};
  one.Add(Table("[64, 2]: x=2 on a.0-1 [x, -] -> x=2 on a.0-1 [-, -]"));
  one.Add(Table("[64, 2]: x=2 on a.0-1 [-, -] -> x=2 on a.0-1 [-, x]"));
  one.Add(Table("[64, 2]: x=2 on a.0-1 [-, x] -> x=2 on a.0-1 [x, -]"));
  ASSERT_OK(one.Prove());
  const CourseMemory memory(CourseTables(one.course), one.whole.devices()[0]);
  EXPECT_EQ(memory.buffer_bytes(), 768);
  EXPECT_EQ(memory.bytes(), 3 * 768);
}

}  // namespace
}  // namespace crossmesh
