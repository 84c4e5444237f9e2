// Sums of slabs whose rows lie apart in the tiles that they are parts of.

#include "common/mesh/layout.h"
#include "common/mesh/shape.h"
#include "common/plan/course_tables.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/planning/testing/course_requests.h"
#include "worker/courses/testing/course_mesh.h"
#include "worker/courses/testing/summands.h"
#include "worker/executor/testing/tile_memory.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Of four planes of two rows each device gets the rows of its own; slabs are columns.
TEST(CourseSlabs, RowsOfASumLieApart) {
  const std::vector<Axis> axes = {{"x", 2}};
  CourseRequest course = RequestOf(
      {.axes = axes,
       .shape = *ParseShape("[4, 2, 64]"),
       .item_bytes = 4,
       .source = EndOf(*ParseLayout("[-, -, -]"), axes, std::vector<std::string>{"x"}).value(),
       .destination = EndOf(*ParseLayout("[-, x, -]"), axes).value()},
      {.devices_of_host = 1});
  course.sizes = {.array_bytes = 512, .row_elements = 1};
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
  ASSERT_EQ(plan.courses().size(), 1);
  const Course<Plan>& of_plan = plan.courses()[0];
  ASSERT_GT(of_plan.instances, 1);
  ASSERT_EQ(of_plan.steps.size(), 1);
  const TileRows rows = RowsOf(of_plan.steps[0].move->tensors(), Side::kDestination, 0, 0);
  ASSERT_EQ(rows.rows(), 4);
  ASSERT_EQ(rows.row_bytes * of_plan.instances, 64 * 4);

  MeshRunner runner(WithCourseRunners({.workers = 2}));
  TileMemory memory(plan);
  FillSummands(course.request.redistribution, plan, memory);
  ASSERT_OK_AND_ASSIGN(const MeshOutcome outcome, runner.Run(plan, {0, 1}, memory, {}));
  for (const TaskReport& report : outcome.reports) EXPECT_OK(report.status);
  EXPECT_OK(CheckSums(course.request.redistribution, plan, memory));
}

}  // namespace
}  // namespace crossmesh
