// Redistributions in several steps of GPUs and host memory: which GPUs go over a communicator, what
// is proven of that, and what it is predicted to take. CROSSMESH_SEED and CROSSMESH_CASES choose
// what random ones are planned.

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/plan/course_tables.h"
#include "common/plan/media.h"
#include "common/plan/proof.h"
#include "common/plan/worker_part.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/planning/plan_redistribution.h"
#include "planner/redistribute/planning/separate_gpus.h"
#include "planner/redistribute/planning/testing/course_requests.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Change {
  std::string mesh;
  std::string source;
  std::string destination;
  std::vector<std::string> partial = {};
  std::string shape = "[64, 64]";
};

// Of GPUs h0.0, h1.0, h2.0 and h3.0 and host memory.
CourseRequest RequestFor(const Change& change) {
  const Mesh mesh = *ParseMesh(change.mesh);
  auto table = TensorTable::Create({.sources = {{mesh, *ParseLayout(change.source)}},
                                    .destinations = {{mesh, *ParseLayout(change.destination)}},
                                    .groups = {{.shape = *ParseShape(change.shape)}},
                                    .group_of_tensor = {0}});
  CHECK_OK(table);
  CourseRequest made;
  made.request = {.tensors = std::make_shared<const TensorTable>(*std::move(table)),
                  .strategy = Strategy::kRedistribute};
  made.request.redistribution.no_relays = true;
  // By time, replicas would share what crosses the NICs, GPUs and host memory alike.
  made.request.redistribution.objective = "bytes";
  made.request.redistribution.source_partial = change.partial;
  if (!change.partial.empty()) made.request.redistribution.reduction = "sum";
  made.sizes = {.array_bytes = int64_t{1} << 30, .row_elements = 1};
  PutOnMixedHosts(made.request);
  return made;
}

Plan ProvenPlanOf(const CourseRequest& request) {
  auto plan = PlanOf(request);
  CHECK_OK(plan);
  CHECK_OK(Prove(*plan));
  return *std::move(plan);
}

std::vector<std::string> OverGpus(const Plan& plan) {
  std::vector<std::string> names;
  for (const DeviceRank device : plan.spec().over_gpus) {
    names.push_back(ToString(plan.tensors().devices()[device]));
  }
  return names;
}

TEST(MixedCourses, ReplicasOnGpusGoOverThem) {
  const Plan plan = ProvenPlanOf(RequestFor({.mesh = "x=2,replica=2 on h0.0-1,h1.0-1",
                                             .source = "[-, -]",
                                             .destination = "[-, -]",
                                             .partial = {"x"}}));
  ASSERT_TRUE(plan.has_courses());
  EXPECT_THAT(OverGpus(plan), ElementsAre("h0.0", "h1.0"));
  for (const Course<Plan>::Step& step : plan.courses()[0].steps) {
    EXPECT_THAT(step.move->spec().over_gpus, IsEmpty());
  }
}

TEST(MixedCourses, ASumOverBothIsByHostMemory) {
  const Plan plan = ProvenPlanOf(RequestFor({.mesh = "x=2,replica=2 on h0.0-1,h1.0-1",
                                             .source = "[-, -]",
                                             .destination = "[-, -]",
                                             .partial = {"replica"}}));
  ASSERT_TRUE(plan.has_courses());
  EXPECT_THAT(OverGpus(plan), IsEmpty());
}

TEST(MixedCourses, AGpuThatHostMemoryNeedsLeavesTheOthers) {
  // Sums over x: of h0.0 and h1.0, and of h2.0 and h0.1.
  const Plan plan = ProvenPlanOf(RequestFor({.mesh = "y=2,x=2 on h0.0,h1.0,h2.0,h0.1",
                                             .source = "[y, -]",
                                             .destination = "[y, -]",
                                             .partial = {"x"}}));
  EXPECT_THAT(OverGpus(plan), ElementsAre("h0.0", "h1.0"));
}

TEST(MixedCourses, OfReplicasTheFirstGivesWhatHostMemoryNeeds) {
  // h0.1 needs the first half, which h0.0 and h2.0 have; it has the second itself.
  const CourseRequest request = RequestFor(
      {.mesh = "r=2,x=2 on h0.0,h1.0,h2.0,h0.1", .source = "[x, -]", .destination = "[-, -]"});
  Course<StepTable> course;
  course.steps = {{.move = std::make_shared<const StepTable>(StepTable{request.request.tensors})}};
  ASSERT_OK_AND_ASSIGN(
      const std::vector<DeviceRank> separate,
      SeparateGpus(*request.request.tensors, {&course, 1}, request.request.topology));
  std::vector<std::string> names;
  for (const DeviceRank device : separate) {
    names.push_back(ToString(request.request.tensors->devices()[device]));
  }
  EXPECT_THAT(names, ElementsAre("h1.0", "h2.0"));
}

TEST(MixedCourses, RandomOnesAreProvenAndTheirPartsAndHalves) {
  const uint64_t first = FromEnvironment("CROSSMESH_SEED", 1);
  const int64_t cases = RandomCases(400);
  int64_t halved = 0;
  for (uint64_t seed = first; seed < first + cases && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed, " CROSSMESH_CASES=1"));
    const CourseRequest request = RandomMixedRequest(seed, seed % 2 == 0);
    const absl::StatusOr<Plan> planned = PlanOf(request);
    if (absl::IsUnimplemented(planned.status())) continue;  // by the method
    ASSERT_OK(planned.status());
    const Plan& plan = *planned;
    ASSERT_OK(Prove(plan));
    EXPECT_GE(plan.figures().predicted_seconds, plan.figures().bound.seconds);
    if (!plan.has_courses() || plan.spec().over_gpus.empty()) continue;
    ++halved;
    ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(plan.tensors()));
    ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> parts,
                         CutParts(plan, {plan.tensors().devices()}));
    EXPECT_OK(ProvePart(parts[0], slicing));
    size_t devices = 0;
    for (const Medium medium : {Medium::kGpus, Medium::kHost}) {
      ASSERT_OK_AND_ASSIGN(const WorkerPart half, CutByMedium(parts[0], medium));
      EXPECT_OK(ProvePart(half, slicing));
      devices += half.spec().devices.size();
      for (const DeviceRank device : half.spec().devices) EXPECT_TRUE(half.Serves(device));
    }
    EXPECT_EQ(devices, plan.tensors().devices().size());
  }
  if (cases >= 100) EXPECT_GT(halved, cases / 20);
}

// The plan with other devices over GPUs, in all of it or in its first step.
Plan WithOverGpus(const Plan& plan, const std::vector<DeviceRank>& of_plan,
                  const std::vector<DeviceRank>& of_step = {}) {
  Plan::Spec spec = plan.spec();
  spec.over_gpus = of_plan;
  std::vector<Course<Plan>> courses = plan.courses();
  Plan::Spec step = courses[0].steps[0].move->spec();
  step.over_gpus = of_step;
  auto changed = Plan::Create(std::move(step));
  CHECK_OK(changed);
  courses[0].steps[0].move = std::make_shared<const Plan>(*std::move(changed));
  spec.courses = std::make_shared<const std::vector<Course<Plan>>>(std::move(courses));
  auto made = Plan::Create(std::move(spec));
  CHECK_OK(made);
  return *std::move(made);
}

TEST(MixedCourses, AHopFromOneHalfToTheOtherIsRefusedByBothProofs) {
  const Plan plan = ProvenPlanOf(RequestFor({.mesh = "x=2,replica=2 on h0.0-1,h1.0-1",
                                             .source = "[-, -]",
                                             .destination = "[-, -]",
                                             .partial = {"x"}}));
  const std::vector<DeviceRank>& over_gpus = plan.spec().over_gpus;
  ASSERT_EQ(over_gpus.size(), 2);
  const Plan wrong = WithOverGpus(plan, {over_gpus.front()});
  const auto is_refused =
      StatusIs(absl::StatusCode::kInternal, AllOf(HasSubstr("media of course 0, step 0"),
                                                  HasSubstr("expected hops that stay over GPUs"),
                                                  HasSubstr("h0.0"), HasSubstr("h1.0")));
  EXPECT_THAT(Prove(wrong), is_refused);
  ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(wrong.tensors()));
  ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> parts,
                       CutParts(wrong, {wrong.tensors().devices()}));
  EXPECT_THAT(ProvePart(parts[0], slicing), is_refused);
}

TEST(MixedCourses, AStepWithMediaOfItsOwnIsRefused) {
  const Plan plan = ProvenPlanOf(RequestFor({.mesh = "x=2,replica=2 on h0.0-1,h1.0-1",
                                             .source = "[-, -]",
                                             .destination = "[-, -]",
                                             .partial = {"x"}}));
  EXPECT_THAT(ProveMedia(WithOverGpus(plan, {}, {0})),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("found 1 of its own")));
}

// Of sums of GPUs and host memory, of whose last step something is other than planned.
absl::Status ProveMediaWith(void (*change)(Course<Plan>::Step& last)) {
  const Plan plan = ProvenPlanOf(RequestFor({.mesh = "x=2,replica=2 on h0.0-1,h1.0-1",
                                             .source = "[-, -]",
                                             .destination = "[-, -]",
                                             .partial = {"x"}}));
  Plan::Spec spec = plan.spec();
  std::vector<Course<Plan>> courses = plan.courses();
  change(courses[0].steps.back());
  spec.courses = std::make_shared<const std::vector<Course<Plan>>>(std::move(courses));
  ASSIGN_OR_RETURN(const Plan wrong, Plan::Create(std::move(spec)));
  return ProveMedia(wrong);
}

TEST(MixedCourses, ACollectiveBesideHostMemoryIsRefused) {
  EXPECT_OK(ProveMediaWith([](Course<Plan>::Step&) {}));
  EXPECT_THAT(ProveMediaWith(
                  [](Course<Plan>::Step& last) { last.collective = StepCollective::kAllGather; }),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("beside host memory")));
}

TEST(MixedCourses, ARingOfSumsBesideHostMemoryIsRefused) {
  EXPECT_THAT(ProveMediaWith([](Course<Plan>::Step& last) { last.adds_own = true; }),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("found a ring of them")));
}

TEST(MixedCourses, InstancesAreThoseOfHostsOrOfGpusWhicheverIsFaster) {
  CourseRequest request = RequestFor({.mesh = "x=2,replica=2 on h0.0-1,h1.0-1",
                                      .source = "[-, -]",
                                      .destination = "[x, -]",
                                      .partial = {"x"},
                                      .shape = "[4096, 4096]"});
  ASSERT_OK_AND_ASSIGN(const Plan chosen, PlanRedistribution(request.request));
  ASSERT_OK(Prove(chosen));
  ASSERT_EQ(chosen.spec().over_gpus.size(), 2);
  ASSERT_OK_AND_ASSIGN(const Plan of_hosts,
                       PlanRedistribution(request.request, NeverCancelled, CourseSizes()));
  ASSERT_GT(of_hosts.courses()[0].instances, 1);
  CourseSizes few = {.array_bytes = int64_t{256} << 20, .instances = 1, .buffers = 1};
  ASSERT_OK_AND_ASSIGN(const Plan of_gpus,
                       PlanRedistribution(request.request, NeverCancelled, few));
  ASSERT_LT(of_gpus.courses()[0].instances, of_hosts.courses()[0].instances);
  EXPECT_DOUBLE_EQ(
      chosen.figures().predicted_seconds,
      std::min(of_hosts.figures().predicted_seconds, of_gpus.figures().predicted_seconds));
}

TEST(MixedCourses, HalvesArePredictedOneAfterTheOther) {
  const CourseRequest both = RequestFor({.mesh = "x=2,replica=2 on h0.0-1,h1.0-1",
                                         .source = "[-, -]",
                                         .destination = "[x, -]",
                                         .partial = {"x"},
                                         .shape = "[1024, 1024]"});
  CourseRequest hosts = both;
  hosts.request.topology =
      *Topology::Create({{.name = "h0", .nics = {{"n", 1'000'000'000, 1'000'000'000, 0, 0}}},
                         {.name = "h1", .nics = {{"n", 1'000'000'000, 1'000'000'000, 0, 0}}}},
                        {});
  const Plan in_halves = ProvenPlanOf(both);
  ASSERT_EQ(in_halves.spec().over_gpus.size(), 2);
  // 2 MiB of each replica cross the NICs, which the hosts' plan has both replicas share.
  const double of_hosts = ProvenPlanOf(hosts).figures().predicted_seconds;
  EXPECT_GT(in_halves.figures().predicted_seconds, 1.9 * of_hosts);
  EXPECT_LT(in_halves.figures().predicted_seconds, 2.5 * of_hosts);
}

}  // namespace
}  // namespace crossmesh
