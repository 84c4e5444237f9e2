#include "common/wire/course_codec.h"

#include "common/plan/testing/random_source.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"
#include "common/wire/worker_part_codec.h"

#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// Of all devices of a table.
WorkerPart PartOf(const TensorTable& table) {
  const auto tensors = std::make_shared<const TensorTable>(table);
  RandomSource random(1);
  const Plan plan =
      Plan::Create(RandomPlan(random, tensors,
                              std::make_shared<const Slicing>(Slicing::Create(*tensors).value())))
          .value();
  return std::move(CutParts(plan, {tensors->devices()}).value()[0]);
}

// A tensor in two slabs goes by two steps, of which the first one brings summands.
WorkerPart WithCourse() {
  TensorTable::Spec first =
      TableSpecOf({TensorOf("[2, 4, 6]: x=2 on a.0-1 [x, -, -] -> x=2 on a.0-1 [-, x, -]")});
  first.groups[0].slab = {
      .summand_dimensions = 1, .row_dimension = 2, .slabs = 2, .in_source = true};
  TensorTable::Spec last =
      TableSpecOf({TensorOf("[4, 6]: x=2 on a.0-1 [x, -] -> x=2 on a.0-1 [-, -]")});
  last.groups[0].slab = {.row_dimension = 1, .slabs = 2, .in_destination = true};
  Course<WorkerPart> course{
      .instances = 2, .buffers = 1, .tensors = {0, 0}, .releases_source = true};
  course.steps.push_back(
      {.move = std::make_shared<const WorkerPart>(PartOf(TensorTable::Create(first).value())),
       .reduction = Reduction{.divisor = 2},
       .collective = StepCollective::kReduceScatter,
       .adds_own = true});
  course.steps.push_back(
      {.move = std::make_shared<const WorkerPart>(PartOf(TensorTable::Create(last).value()))});
  const WorkerPart whole =
      PartOf(TableOf({TensorOf("[4, 12]: x=2 on a.0-1 [-, -] -> x=2 on a.0-1 [-, -]")}));
  WorkerPart::Spec spec = whole.spec();
  spec.relays.clear();
  spec.hops.clear();
  spec.copies.clear();
  spec.courses =
      std::make_shared<const std::vector<Course<WorkerPart>>>(std::vector{std::move(course)});
  return WorkerPart::Create(std::move(spec)).value();
}

TEST(CourseCodec, CoursesSurviveBothWays) {
  const WorkerPart part = WithCourse();
  ASSERT_OK_AND_ASSIGN(const WorkerPart read, FromProto(ToProto(part)));
  EXPECT_EQ(read.digest(), part.digest());
  ASSERT_EQ(read.courses().size(), 1);
  const Course<WorkerPart>& course = read.courses()[0];
  EXPECT_EQ(course.tensors, (std::vector{0, 0}));
  EXPECT_TRUE(course.releases_source);
  EXPECT_EQ(course.steps[0].reduction, Reduction{.divisor = 2});
  EXPECT_EQ(course.steps[1].reduction, std::nullopt);
  EXPECT_EQ(course.steps[0].collective, StepCollective::kReduceScatter);
  EXPECT_EQ(course.steps[1].collective, std::nullopt);
  EXPECT_TRUE(course.steps[0].adds_own);
  EXPECT_FALSE(course.steps[1].adds_own);
  EXPECT_EQ(course.steps[1].move->digest(), part.courses()[0].steps[1].move->digest());
  EXPECT_EQ(course.steps[0].move->tensors().groups()[0].slab,
            part.courses()[0].steps[0].move->tensors().groups()[0].slab);
}

// What a course says is in the digest that names the part.
TEST(CourseCodec, AnotherCourseIsAnotherPart) {
  const WorkerPart part = WithCourse();
  v1::WorkerPart proto = ToProto(part);
  proto.mutable_courses(0)->set_buffers(2);
  ASSERT_OK_AND_ASSIGN(const WorkerPart buffers, FromProto(proto));
  EXPECT_NE(buffers.digest(), part.digest());
  proto = ToProto(part);
  proto.mutable_courses(0)->clear_releases_source();
  ASSERT_OK_AND_ASSIGN(const WorkerPart stays, FromProto(proto));
  EXPECT_NE(stays.digest(), part.digest());
  proto = ToProto(part);
  proto.mutable_courses(0)->mutable_steps(0)->mutable_reduction()->set_kind(
      v1::WorkerPart::Reduction::KIND_MAX);
  ASSERT_OK_AND_ASSIGN(const WorkerPart reduction, FromProto(proto));
  EXPECT_NE(reduction.digest(), part.digest());
  proto = ToProto(part);
  proto.mutable_courses(0)->mutable_steps(0)->clear_adds_own();
  ASSERT_OK_AND_ASSIGN(const WorkerPart at_once, FromProto(proto));
  EXPECT_NE(at_once.digest(), part.digest());
  proto = ToProto(part);
  proto.mutable_courses(0)
      ->mutable_steps(0)
      ->mutable_move()
      ->mutable_groups(0)
      ->mutable_slab()
      ->set_row_dimension(1);
  ASSERT_OK_AND_ASSIGN(const WorkerPart slab, FromProto(proto));
  EXPECT_NE(slab.digest(), part.digest());
}

TEST(CourseCodec, WhatNoCourseCanBeIsRefused) {
  const v1::WorkerPart part = ToProto(WithCourse());
  const auto refused = [](const v1::WorkerPart& proto, absl::string_view what) {
    EXPECT_THAT(FromProto(proto).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)));
  };
  v1::WorkerPart proto = part;
  *proto.mutable_courses(0)->mutable_steps(0)->mutable_move() = part;
  refused(proto, "a part without courses");
  proto = part;
  for (int i = 0; i < 63; ++i) *proto.mutable_courses(0)->add_steps() = part.courses(0).steps(0);
  refused(proto, "at most 64 steps");
  proto = part;
  proto.mutable_courses(0)->set_tensors(1, -1);
  refused(proto, "tensor of a course");
  proto = part;
  proto.mutable_courses(0)->mutable_steps(0)->mutable_reduction()->clear_kind();
  refused(proto, "kind of a reduction");
  proto = part;
  proto.mutable_courses(0)
      ->mutable_steps(0)
      ->mutable_move()
      ->mutable_groups(0)
      ->mutable_slab()
      ->set_row_dimension(9);
  refused(proto, "slab of tensor group 0");
  proto = part;
  proto.mutable_courses(0)
      ->mutable_steps(0)
      ->mutable_move()
      ->mutable_groups(0)
      ->mutable_slab()
      ->set_slabs(0);
  refused(proto, "slab of tensor group 0");
  proto = part;
  proto.add_copy_class(0);
  proto.add_copy_device(0);
  refused(proto, "beside courses");
}

}  // namespace
}  // namespace crossmesh
