// Where one move of everything takes the place of steps.

#include "common/mesh/layout.h"
#include "common/mesh/shape.h"
#include "common/plan/proof.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/baselines/baselines.h"
#include "planner/redistribute/planning/plan_redistribution.h"
#include "planner/redistribute/planning/testing/course_requests.h"
#include "planner/redistribute/testing/random_redistribution.h"
#include "planner/reshard/plan_reshard.h"

#include <cstdint>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::StartsWith;

// By chance, on up to 36 devices, without sums, and so large that whole elements do not matter.
CourseRequest LargePair(uint64_t seed) {
  RedistributionRequest drawn =
      RandomRedistribution(seed, {.devices_max = 36, .partial = false, .uneven = seed % 4 == 0});
  std::vector<int64_t> lengths(drawn.shape.lengths().begin(), drawn.shape.lengths().end());
  lengths[seed % lengths.size()] *= 4096;
  drawn.shape = Shape::Create(lengths).value();
  CourseRequest course =
      RequestOf(drawn, {.devices_of_host = static_cast<int64_t>(1 + seed / 3 % 4)});
  if (seed % 3 == 0) PutOnGpus(course.request);
  course.sizes = {};
  return course;
}

TEST(OneMove, NeitherOneMoveNorAMethodOfTheLiteratureIsPredictedToTakeLess) {
  const uint64_t seed = FromEnvironment("CROSSMESH_SEED", 900'000);
  int64_t compared = 0;
  const int64_t cases = RandomCases(300);
  for (int64_t i = 0; i < cases && !HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
    CourseRequest course = LargePair(seed + i);
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanRedistribution(course.request));
    EXPECT_OK(Prove(plan));
    const double least = plan.figures().predicted_seconds * (1 - 1e-9);
    ReshardRequest move = course.request;
    move.strategy = Strategy::kRelay;
    ASSERT_OK_AND_ASSIGN(const Plan one_move, PlanReshard(move));
    EXPECT_GE(one_move.figures().predicted_seconds, least);
    for (const RedistributionBaseline method : kRedistributionBaselines) {
      course.request.redistribution.method = std::string(RedistributionBaselineName(method));
      const absl::StatusOr<Plan> other = PlanRedistribution(course.request);
      if (!other.ok()) continue;  // that it cannot say
      ++compared;
      EXPECT_GE(other->figures().predicted_seconds, least) << course.request.redistribution.method;
    }
  }
  if (cases >= 300) EXPECT_GT(compared, 500);
}

// Over hosts of three devices, so that no part of an axis stays inside one.
CourseRequest GatheredVector(int64_t length, DataType type) {
  const std::vector<Axis> axes = {{"x", 2}, {"y", 16}, {"z", 2}};
  return RequestOf({.axes = axes,
                    .shape = Shape::Create({{length}}).value(),
                    .item_bytes = ItemBytes(type),
                    .source = EndOf(*ParseLayout("[y]"), axes).value(),
                    .destination = EndOf(*ParseLayout("[-]"), axes).value()},
                   {.devices_of_host = 3, .type = type});
}

TEST(OneMove, OneMoveThatIsPredictedToTakeNoLongerThanStepsIsMade) {
  ASSERT_OK_AND_ASSIGN(const Plan plan,
                       PlanRedistribution(GatheredVector(1 << 20, DataType::kF32).request));
  EXPECT_FALSE(plan.has_courses());
  EXPECT_THAT(plan.figures().search, StartsWith("1 tensor in 1 step; by the search: 1 tensor in "
                                                "2 steps, which would take "));
}

TEST(OneMove, StepsThatArePredictedToTakeLessThanOneMoveAreTaken) {
  ASSERT_OK_AND_ASSIGN(const Plan plan,
                       PlanRedistribution(GatheredVector(16, DataType::kF32).request));
  EXPECT_TRUE(plan.has_courses());
  EXPECT_THAT(plan.figures().search, StartsWith("1 tensor in 2 steps; in 1 step all would take "));
}

// From sixteen parts to two, over eleven hosts: a move down long chains takes longer to fill than
// two steps that send more bytes.
TEST(OneMove, WhereItIsNotAtItsBoundStepsWithoutRelaysAreLookedFor) {
  const std::vector<Axis> axes = {{"x", 16}, {"y", 2}};
  const CourseRequest course =
      RequestOf({.axes = axes,
                 .shape = Shape::Create({{32, 2, 8192}}).value(),
                 .item_bytes = 4,
                 .source = EndOf(*ParseLayout("[x, -, -]"), axes).value(),
                 .destination = EndOf(*ParseLayout("[y, -, -]"), axes).value()},
                {.devices_of_host = 3});
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanRedistribution(course.request));
  EXPECT_TRUE(plan.has_courses());
  EXPECT_EQ(plan.figures().search, "1 tensor in 2 steps; in 1 step all would take 174.6 us");
  CourseRequest least = course;
  least.request.redistribution.objective = "bytes";
  ASSERT_OK_AND_ASSIGN(const Plan of_bytes, PlanRedistribution(least.request));
  EXPECT_EQ(of_bytes.figures().search, "1 tensor in 1 step");
}

// Two hosts of four devices, which change places: the search takes three steps, two inside hosts.
CourseRequest SwappedAxes() {
  const std::vector<Axis> axes = {{"node", 2}, {"gpu", 4}};
  return RequestOf({.axes = axes,
                    .shape = Shape::Create({{4096, 4096}}).value(),
                    .item_bytes = 4,
                    .source = EndOf(*ParseLayout("[node, gpu]"), axes).value(),
                    .destination = EndOf(*ParseLayout("[gpu, node]"), axes).value()},
                   {.devices_of_host = 4});
}

TEST(OneMove, OneMoveAtTheBoundNeedsNoComparison) {
  CourseRequest course = SwappedAxes();
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanRedistribution(course.request));
  EXPECT_FALSE(plan.has_courses());
  EXPECT_EQ(plan.figures().search,
            "1 tensor in 1 step, as fast as any plan; by the search: 1 tensor in 3 steps");
  // What is asked for by name is what is done.
  course.request.redistribution.no_relays = true;
  ASSERT_OK_AND_ASSIGN(const Plan steps, PlanRedistribution(course.request));
  EXPECT_TRUE(steps.has_courses());
  course.request.redistribution = {.method = "one_axis"};
  ASSERT_OK_AND_ASSIGN(const Plan one_axis, PlanRedistribution(course.request));
  EXPECT_TRUE(one_axis.has_courses());
  EXPECT_EQ(one_axis.figures().search, "1 tensor in 2 steps");
}

}  // namespace
}  // namespace crossmesh
