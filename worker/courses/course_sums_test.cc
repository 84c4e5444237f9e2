// Sums of numbers that are rounded: their bits say in which order they were made.

#include "common/plan/course.h"
#include "common/plan/testing/random_source.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/planning/testing/course_requests.h"
#include "worker/courses/testing/course_mesh.h"
#include "worker/courses/testing/summands.h"
#include "worker/executor/testing/mesh_runner.h"
#include "worker/executor/testing/random_case.h"
#include "worker/executor/testing/tile_memory.h"

#include <algorithm>
#include <cstdint>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Whether each tensor is summed in one step, so not sums of sums.
bool SumsOnce(const Plan& plan) {
  return plan.has_courses() && std::ranges::all_of(plan.courses(), [](const Course<Plan>& course) {
           return std::ranges::count_if(course.steps, [](const Course<Plan>::Step& step) {
                    return step.reduction.has_value();
                  }) == 1;
         });
}

// By other workers each time, over which messages come late and in any order.
void RunInAnyOrder(const CourseRequest& course, const Plan& plan, uint64_t seed) {
  for (const int32_t count : {1, 3}) {
    MeshRunner runner(WithCourseRunners(
        {.workers = count,
         .faults = {.seed = seed, .delay_probability = 0.3, .reorder_channels = true}}));
    TileMemory memory(plan);
    FillRoundedSummands(course.request.redistribution, plan, memory);
    RandomSource random(seed);
    ASSERT_OK_AND_ASSIGN(const MeshOutcome outcome,
                         runner.Run(plan, DealDevices(random, plan, count), memory, {}));
    for (const TaskReport& report : outcome.reports) EXPECT_OK(report.status);
    EXPECT_OK(CheckSumsInOrder(course.request.redistribution, plan, memory)) << count << " workers";
  }
}

TEST(CourseSums, SummandsAreAddedInTheOrderOfTheirCoordinatesWhateverComesFirst) {
  const uint64_t first = FromEnvironment("CROSSMESH_SEED", 300'000);
  const int64_t cases = RandomCases(300);
  int64_t summed = 0;
  for (uint64_t seed = first; seed < first + cases && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed, " CROSSMESH_CASES=1"));
    const CourseRequest course = RandomCourseRequest(seed, true, {.type = DataType::kF32});
    const std::string& reduction = course.request.redistribution.reduction;
    if (reduction != "sum" && reduction != "mean") continue;
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
    if (!SumsOnce(plan)) continue;
    RunInAnyOrder(course, plan, seed);
    ++summed;
  }
  if (cases >= 300) EXPECT_GT(summed, 60);
}

}  // namespace
}  // namespace crossmesh
