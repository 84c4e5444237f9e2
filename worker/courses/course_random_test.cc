// Random redistributions on random workers: every element is what gathering, reducing and slicing
// anew gives, and nothing else is written. CROSSMESH_SEED and CROSSMESH_CASES choose what is run.

#include "common/plan/proof.h"
#include "common/plan/testing/random_source.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/planning/testing/course_requests.h"
#include "worker/courses/testing/course_mesh.h"
#include "worker/courses/testing/summands.h"
#include "worker/executor/testing/random_case.h"
#include "worker/executor/testing/tile_memory.h"

#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

struct Kind {
  bool partial = false;
  bool releases = false;  // the source, which is spoilt as soon as it is released
};

void RunCases(int64_t cases, MeshRunner::Options options, uint64_t seed, Kind kind) {
  MeshRunner runner(WithCourseRunners(std::move(options)));
  for (int64_t i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
    RandomSource random(seed + i);
    CourseRequest course = RandomCourseRequest(seed + i, kind.partial);
    course.request.redistribution.release_source = kind.releases;
    course.sizes.released_row_elements = 1;
    if (kind.releases) course.request.binding = BindingMode::kInPlace;
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
    ASSERT_OK(Prove(plan)) << ToText(plan, 4);
    TileMemory memory(plan);
    const bool sums = !course.request.redistribution.source_partial.empty();
    if (sums) FillSummands(course.request.redistribution, plan, memory);
    const std::vector<int32_t> workers = DealDevices(random, plan, runner.workers());
    ASSERT_OK_AND_ASSIGN(const MeshOutcome outcome,
                         runner.Run(plan, workers, memory, {.checksums = !random.OneIn(4)}));
    for (const TaskReport& report : outcome.reports) EXPECT_OK(report.status);
    for (const auto& [device, report] : outcome.devices) {
      EXPECT_OK(report.status);
      if (!sums) EXPECT_OK(memory.CheckDestination(device));
    }
    if (sums) {
      EXPECT_OK(CheckSums(course.request.redistribution, plan, memory));
    } else if (!kind.releases) {
      EXPECT_OK(memory.CheckUntouched());
    }
  }
  EXPECT_EQ(runner.Counters().staging_bytes_used, 0);
}

TEST(CourseRandom, EveryElementArrives) {
  RunCases(RandomCases(2500), {.workers = 3}, FromEnvironment("CROSSMESH_SEED", 1), {});
}

TEST(CourseRandom, EverySumIsMade) {
  RunCases(RandomCases(1500), {.workers = 3}, FromEnvironment("CROSSMESH_SEED", 100'000),
           {.partial = true});
}

TEST(CourseRandom, DelayAndReorderChangeNothing) {
  RunCases(RandomCases(300),
           {.workers = 4,
            .faults = {.seed = 5, .delay_probability = 0.3, .reorder_channels = true},
            .executor = {.staging_bytes = 4 << 20}},  // a chunk in each direction
           FromEnvironment("CROSSMESH_SEED", 200'000), {.partial = true});
}

TEST(CourseRandom, SourcesThatAreReleasedHaveBeenRead) {
  for (const bool partial : {false, true}) {
    RunCases(
        RandomCases(400),
        {.workers = 3, .faults = {.seed = 7, .delay_probability = 0.1, .reorder_channels = true}},
        FromEnvironment("CROSSMESH_SEED", 250'000), {.partial = partial, .releases = true});
  }
}

}  // namespace
}  // namespace crossmesh
