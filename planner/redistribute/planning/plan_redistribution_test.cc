#include "planner/redistribute/planning/plan_redistribution.h"

#include "common/plan/course.h"
#include "common/plan/proof.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/planning/testing/course_requests.h"

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(PlanRedistribution, RandomPlansAreProven) {
  const uint64_t seed = FromEnvironment("CROSSMESH_SEED", 1);
  int64_t with_courses = 0;
  int64_t with_instances = 0;
  const int64_t cases = RandomCases(1000);
  for (int64_t i = 0; i < cases && !HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
    const CourseRequest course = RandomCourseRequest(seed + i, i % 2 == 0);
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
    EXPECT_OK(Prove(plan));
    with_courses += !plan.has_courses() ? 0 : 1;
    for (const Course<Plan>& of_plan : plan.courses()) {
      if (of_plan.instances > 1) ++with_instances;
    }
  }
  RecordProperty("with_courses", std::to_string(with_courses));
  if (cases >= 1000) {
    EXPECT_GT(with_courses, 300);
    EXPECT_GT(with_instances, 100);
  }
}

}  // namespace
}  // namespace crossmesh
