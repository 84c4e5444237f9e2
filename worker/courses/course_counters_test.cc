// What is counted of redistributions whose numbers are known: of four devices at two workers, each
// with a summand of a matrix that all are to have, reduced in parts and gathered.

#include "worker/courses/course_counters.h"

#include "common/metrics/label_set.h"
#include "common/plan/step_kind.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/planning/testing/course_requests.h"
#include "worker/courses/course_task_runner.h"
#include "worker/courses/testing/course_mesh.h"
#include "worker/courses/testing/summands.h"
#include "worker/executor/testing/tile_memory.h"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int64_t kMatrixBytes = int64_t{64} * 128 * 4;

CourseRequest SumsOfFour(const CourseSizes& sizes) {
  const std::vector<Axis> axes = {{"x", 4}};
  CourseRequest course = RequestOf(
      {.axes = axes,
       .shape = *ParseShape("[64, 128]"),
       .item_bytes = 4,
       .source = EndOf(*ParseLayout("[-, -]"), axes, std::vector<std::string>{"x"}).value(),
       .destination = EndOf(*ParseLayout("[-, -]"), axes).value()},
      {.devices_of_host = 2});
  course.sizes = sizes;
  return course;
}

// Runs it on two workers. Their counters, once all arrays are given back.
std::vector<CourseCounters> CountersOf(const CourseRequest& course, const Plan& plan) {
  ArrayCount arrays;
  std::vector<CourseTaskRunner*> runners;
  MeshRunner::Options options = WithCourseRunners({.workers = 2}, &arrays);
  options.make_runner = [&runners, make = options.make_runner](EventLoop& loop,
                                                               Executor& executor) {
    auto runner = make(loop, executor);
    runners.push_back(static_cast<CourseTaskRunner*>(runner.get()));
    return runner;
  };
  MeshRunner runner(options);
  TileMemory memory(plan);
  FillSummands(course.request.redistribution, plan, memory);
  const auto outcome = runner.Run(plan, {0, 0, 1, 1}, memory, {});
  EXPECT_OK(outcome.status());
  for (const TaskReport& report : outcome->reports) EXPECT_OK(report.status);
  EXPECT_OK(CheckSums(course.request.redistribution, plan, memory));
  arrays.WaitUntilGone();
  std::vector<CourseCounters> counters;
  for (const CourseTaskRunner* const each : runners) counters.push_back(each->counters());
  return counters;
}

TEST(CourseCounters, StepsAreCountedByKindForEachInstance) {
  const CourseRequest course = SumsOfFour({.array_bytes = 2048, .row_elements = 1});
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
  ASSERT_EQ(plan.courses().size(), 1);
  const int64_t instances = plan.courses()[0].instances;
  ASSERT_GT(instances, 4);
  for (const CourseCounters& counters : CountersOf(course, plan)) {
    EXPECT_EQ(counters.all_steps_moved(), 2 * instances);
    EXPECT_EQ(counters.steps_moved[static_cast<size_t>(StepKind::kReduceScatter)], instances);
    EXPECT_EQ(counters.steps_moved[static_cast<size_t>(StepKind::kAllGather)], instances);
    // Each of two devices reads four summands of its quarter.
    EXPECT_EQ(counters.reduced_bytes, 2 * kMatrixBytes);
  }
}

TEST(CourseCounters, ThePeakIsWhatLiesBetweenStepsOfAllDevices) {
  const CourseRequest course = SumsOfFour({.array_bytes = int64_t{1} << 30});
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
  ASSERT_EQ(plan.courses().size(), 1);
  ASSERT_EQ(plan.courses()[0].instances, 1);
  for (const CourseCounters& counters : CountersOf(course, plan)) {
    // Four summands of a quarter, and the sums of it.
    EXPECT_EQ(counters.array_bytes_peak, 2 * (kMatrixBytes + kMatrixBytes / 4));
    EXPECT_EQ(counters.array_bytes, 0);
  }
}

TEST(CourseCounters, MetricsHaveTheNamesOfKinds) {
  ASSERT_EQ(std::size(kStepKindLabels), kStepKinds);
  for (size_t kind = 0; kind < kStepKinds; ++kind) {
    EXPECT_EQ(kStepKindLabels[kind], StepKindName(static_cast<StepKind>(kind)));
  }
}

}  // namespace
}  // namespace crossmesh
