#include "planner/redistribute/planning/collective_choice.h"

#include "common/plan/communicator_splits.h"
#include "common/plan/course.h"
#include "common/plan/course_tables.h"
#include "common/plan/proof.h"
#include "common/plan/worker_part.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/planning/course_draft.h"
#include "planner/redistribute/planning/testing/course_requests.h"

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// By all steps of all courses.
int64_t CollectivesOf(const Plan& plan, StepCollective kind) {
  int64_t count = 0;
  for (const Course<Plan>& course : plan.courses()) {
    count += std::ranges::count(course.steps, kind, &Course<Plan>::Step::collective);
  }
  return count;
}

// Of gathers and sums that are all there, or are not by the order that the request has, by types
// that NCCL does not add, by the part of NICs, or by costs.
TEST(CollectiveChoice, CollectivesAreTakenWhereTheyAreFasterAndAllowed) {
  std::map<StepCollective, int64_t> taken;
  for (uint64_t seed = 0; seed < 40 && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const bool sums = seed % 2 == 0;
    CourseRequest course = RandomCollectiveRequest(seed, sums);
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
    EXPECT_OK(Prove(plan));
    EXPECT_GE(plan.figures().predicted_seconds, plan.figures().bound.seconds);
    int64_t of_plan = 0;
    for (const auto kind :
         {StepCollective::kAllGather, StepCollective::kReduceScatter, StepCollective::kAllReduce}) {
      taken[kind] += CollectivesOf(plan, kind);
      of_plan += CollectivesOf(plan, kind);
    }
    EXPECT_GE(of_plan, 1);
    EXPECT_THAT(plan.figures().search, HasSubstr("by NCCL: "));
    EXPECT_EQ(absl::StrContains(plan.figures().search, "summands in NCCL's own order"), sums);
    ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> parts,
                         CutParts(plan, {plan.tensors().devices()}));
    EXPECT_OK(ProvePart(parts[0], *Slicing::Create(parts[0].tensors())));

    CourseRequest fixed = course;
    fixed.request.redistribution.reduction_order = "fixed";
    ASSERT_OK_AND_ASSIGN(const Plan in_order, PlanOf(fixed));
    EXPECT_EQ(CollectivesOf(in_order, StepCollective::kReduceScatter) +
                  CollectivesOf(in_order, StepCollective::kAllReduce),
              0);
    CourseRequest part_of_nics = course;
    part_of_nics.request.nic_share = 0.5;
    ASSERT_OK_AND_ASSIGN(const Plan by_relays, PlanOf(part_of_nics));
    EXPECT_EQ(absl::StrContains(by_relays.figures().search, "NCCL"), false);
  }
  EXPECT_GT(taken[StepCollective::kAllGather], 15);
  EXPECT_GT(taken[StepCollective::kReduceScatter], 8);
  EXPECT_GT(taken[StepCollective::kAllReduce], 1);
}

TEST(CollectiveChoice, TypesThatNcclDoesNotAddAreAddedByOurKernels) {
  const CourseRequest course = RandomCollectiveRequest(2, true, DataType::kU16);
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
  EXPECT_THAT(plan.figures().search, HasSubstr("in the order of their coordinates"));
}

TEST(CollectiveChoice, ARequestWithAnotherOrderOfSumsIsRefused) {
  CourseRequest course = RandomCollectiveRequest(2, true);
  course.request.redistribution.reduction_order = "some";
  EXPECT_THAT(PlanOf(course),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("reduction_order: expected \"fixed\" or \"any\"")));
}

// A word that is not true, or relays by which hashes would not go, are refused on both sides.
TEST(CollectiveChoice, MoreSplitsThanACommunicatorKeepsAreRefused) {
  const Mesh mesh = *ParseMesh("x=2,y=2,z=2 on a.0-7");
  std::vector<Course<StepTable>> gathers;
  for (const std::string axes : {"x", "y", "z", "x*y", "y*z", "x*y*z"}) {
    auto table =
        TensorTable::Create({.sources = {{mesh, *ParseLayout(absl::StrCat("[", axes, ", -]"))}},
                             .destinations = {{mesh, *ParseLayout("[-, -]")}},
                             .groups = {{.shape = *Shape::Create({{16, 4}})}},
                             .group_of_tensor = {0}});
    ASSERT_OK(table.status());
    Course<StepTable>& course = gathers.emplace_back();
    course.steps = {{.move = std::make_shared<const StepTable>(
                         StepTable{std::make_shared<const TensorTable>(*std::move(table))}),
                     .collective = StepCollective::kAllGather}};
  }
  const TensorTable& whole = gathers[0].steps[0].move->tensors();
  const std::vector<CourseTables> courses(gathers.begin(), gathers.end());
  const std::span<const CourseTables> all = courses;
  EXPECT_OK(ProveSplits(whole, all.first(4)));
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("expected at most 4 splits of the communicator into "
                                          "groups, found 5"));
  EXPECT_THAT(ProveSplits(whole, all.first(5)), refused);
  // All devices in their order have the communicator that there is, and need no split.
  EXPECT_THAT(ProveSplits(whole, all), refused);
}

TEST(CollectiveChoice, ACollectiveThatItsStepIsNotIsRefusedOnBothSides) {
  CourseRequest course = RandomCollectiveRequest(1, false);
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
  const auto refuse = [&](absl::FunctionRef<void(Course<Plan>::Step&)> change,
                          const std::string& message) {
    Plan::Spec spec = plan.spec();
    std::vector<Course<Plan>> courses = *spec.courses;
    for (Course<Plan>& of_plan : courses) {
      for (Course<Plan>::Step& step : of_plan.steps) {
        if (step.collective.has_value()) change(step);
      }
    }
    spec.courses = std::make_shared<const std::vector<Course<Plan>>>(std::move(courses));
    ASSERT_OK_AND_ASSIGN(const Plan changed, Plan::Create(std::move(spec)));
    EXPECT_THAT(Prove(changed), StatusIs(absl::StatusCode::kInternal, HasSubstr(message)));
    ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> parts,
                         CutParts(changed, {changed.tensors().devices()}));
    EXPECT_THAT(ProvePart(parts[0], *Slicing::Create(parts[0].tensors())),
                StatusIs(absl::StatusCode::kInternal, HasSubstr(message)));
  };
  refuse([](Course<Plan>::Step& step) { step.collective = StepCollective::kAllReduce; },
         "expected all-reduce in groups of devices of the plan, found all-gather");
  refuse(
      [](Course<Plan>::Step& step) {
        Plan::Spec of_step = step.move->spec();
        of_step.relays.back().due = {.begin = 1, .end = 2};
        step.move = std::make_shared<const Plan>(*Plan::Create(std::move(of_step)));
      },
      "all-gather: expected one relay from each device");
}

}  // namespace
}  // namespace crossmesh
