#include "planner/redistribute/planning/plan_redistribution.h"

#include "common/base/check.h"
#include "common/mesh/topology.h"
#include "common/plan/course.h"
#include "common/plan/proof.h"
#include "common/plan/worker_part.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/network/simulator.h"
#include "planner/redistribute/planning/testing/course_requests.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
    EXPECT_GT(with_courses, 400);
    EXPECT_GT(with_instances, 80);
  }
}

// Sums of a matrix of 16 MiB over four devices come to quarters.
CourseRequest SumsOfAMatrix() {
  const std::vector<Axis> axes = {{"x", 4}};
  const RedistributionRequest request{
      .axes = axes,
      .shape = Shape::Create({{2048, 2048}}).value(),
      .item_bytes = 4,
      .source = EndOf(*ParseLayout("[-, -]"), axes, std::vector<std::string>{"x"}).value(),
      .destination = EndOf(*ParseLayout("[x, -]"), axes).value()};
  return RequestOf(request, {.devices_of_host = 2});
}

TEST(PlanRedistribution, ArraysAreAsSmallAsTheLimitOfMemoryAsks) {
  CourseRequest course = SumsOfAMatrix();
  ASSERT_OK_AND_ASSIGN(const Plan free, PlanOf(course));
  ASSERT_OK_AND_ASSIGN(const Proof without_limit, Prove(free));
  // Source, destination and its shadow.
  constexpr int64_t kStorages = (16 << 20) + 2 * (4 << 20);
  EXPECT_GT(without_limit.peak_device_bytes, kStorages + (4 << 20));
  course.request.device_bytes_max = kStorages + (1 << 20);
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
  EXPECT_GT(plan.courses()[0].instances, free.courses()[0].instances);
  EXPECT_OK(Prove(plan, {.device_bytes_max = course.request.device_bytes_max}));
  course.request.device_bytes_max = kStorages + 1;
  EXPECT_THAT(PlanOf(course), StatusIs(absl::StatusCode::kResourceExhausted,
                                       HasSubstr("with what lies between steps")));
}

TEST(PlanRedistribution, APlanWithSumsSaysInWhichOrderTheyAreMade) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(SumsOfAMatrix()));
  EXPECT_EQ(plan.figures().search,
            "1 tensor in 2 steps, summands in the order of their coordinates");
}

// Over four hosts: the gather of an all-reduce runs beside its reduce-scatter.
TEST(PlanRedistribution, AGatherGoesRoundARingUnlessAnotherStepPassesItsPorts) {
  const std::vector<Axis> axes = {{"x", 4}};
  const auto depths = [&](const char* source, const std::vector<std::string>& partial) {
    const RedistributionRequest request{
        .axes = axes,
        .shape = Shape::Create({{2048, 2048}}).value(),
        .item_bytes = 4,
        .source = EndOf(*ParseLayout(source), axes, partial).value(),
        .destination = EndOf(*ParseLayout("[-, -]"), axes).value()};
    CourseRequest course = RequestOf(request, {.devices_of_host = 1});
    course.request.redistribution.no_relays = true;
    const absl::StatusOr<Plan> plan = PlanOf(course);
    CHECK_OK(plan);
    std::vector<int32_t> of_steps;
    if (!plan->has_courses()) return std::vector<int32_t>{plan->figures().depth};
    for (const Course<Plan>::Step& step : plan->courses()[0].steps) {
      of_steps.push_back(step.move->figures().depth);
    }
    return of_steps;
  };
  EXPECT_THAT(depths("[x, -]", {}), ElementsAre(3));
  EXPECT_THAT(depths("[-, -]", {"x"}), ElementsAre(1, 1));
}

TEST(PlanRedistribution, ASimulationSaysThatItKnowsNoCourses) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(SumsOfAMatrix()));
  EXPECT_THAT(Simulate(plan, Topology()),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("courses")));
}

// NICs idle until the first instance has gone through its first steps.
TEST(PlanRedistribution, ArraysAreNoLargerThanASixteenthUnlessTheyAreSmall) {
  const CourseRequest course = SumsOfAMatrix();
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
  EXPECT_EQ(plan.courses()[0].instances, 16);
  CourseRequest larger = course;
  larger.sizes.array_bytes_min = 4 << 20;
  ASSERT_OK_AND_ASSIGN(const Plan of_four, PlanOf(larger));
  EXPECT_EQ(of_four.courses()[0].instances, 4);
}

// About 256 MiB of summands on each device, which come to a part of their sum on each.
int32_t InstancesOfSums(int64_t devices) {
  const std::vector<Axis> axes = {{"x", devices}};
  const RedistributionRequest request{
      .axes = axes,
      .shape = Shape::Create({{8192 / devices * devices, 8192}}).value(),
      .item_bytes = 4,
      .source = EndOf(*ParseLayout("[-, -]"), axes, std::vector<std::string>{"x"}).value(),
      .destination = EndOf(*ParseLayout("[x, -]"), axes).value()};
  const absl::StatusOr<Plan> plan = PlanOf(RequestOf(request, {.devices_of_host = devices}));
  CHECK_OK(plan);
  return plan->courses()[0].instances;
}

// Arrays of 4 MiB have that of up to four summands.
TEST(PlanRedistribution, ASummandOfAnInstanceHasAChunkUnlessThereAreMany) {
  EXPECT_EQ(InstancesOfSums(2), 64);
  EXPECT_EQ(InstancesOfSums(4), 64);
  EXPECT_EQ(InstancesOfSums(8), 32);
  EXPECT_EQ(InstancesOfSums(31), 16);
}

// The number after `name` in a message.
int64_t NumberAfter(absl::string_view name, absl::string_view message) {
  const size_t at = message.find(name);
  CHECK(at != absl::string_view::npos) << message;
  message.remove_prefix(at + name.size());
  return std::stoll(std::string(message.substr(0, message.find_first_not_of("0123456789"))));
}

int64_t PeakOf(const CourseRequest& course) {
  const absl::StatusOr<Plan> plan = PlanOf(course);
  CHECK_OK(plan);
  const absl::StatusOr<Proof> proof = Prove(*plan);
  CHECK_OK(proof);
  return proof->peak_device_bytes;
}

// As a client sees it.
absl::Status PlanWithin(CourseRequest course, int64_t limit) {
  course.request.device_bytes_max = limit;
  const absl::StatusOr<Plan> plan = PlanOf(course);
  if (!plan.ok()) return plan.status();
  return Prove(*plan, {.device_bytes_max = limit}).status();
}

// What can be planned under some limit can be under what the refusal names, and under nothing less.
// Returns by how much that is below what is planned without a limit.
int64_t CheckLeastLimit(CourseRequest course) {
  course.sizes = {};
  const absl::Status refused = PlanWithin(course, 1);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted));
  const bool is_of_courses = absl::StrContains(refused.message(), "between steps, found");
  const int64_t least = NumberAfter(
      is_of_courses ? "expected at least " : "expected at most 1, found ", refused.message());
  EXPECT_OK(PlanWithin(course, least));
  EXPECT_THAT(PlanWithin(course, least - 1), StatusIs(absl::StatusCode::kResourceExhausted));
  const int64_t spared = PeakOf(course) - least;
  if (!is_of_courses) return spared;
  // Whatever else instances and buffers could be.
  for (int64_t bytes = 1; bytes <= 1 << 24; bytes *= 7) {
    for (const int32_t buffers : {1, 3}) {
      course.sizes = {.array_bytes = bytes, .row_elements = 1, .buffers = buffers};
      EXPECT_GE(PeakOf(course), least) << bytes << " bytes, " << buffers << " buffers";
    }
  }
  return spared;
}

TEST(PlanRedistribution, ARefusalNamesTheLeastLimitThatDoes) {
  const uint64_t seed = FromEnvironment("CROSSMESH_SEED", 50'000);
  for (int64_t i = 0; i < RandomCases(60) && !HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
    CheckLeastLimit(RandomCourseRequest(seed + i, i % 4 != 0));
  }
  // Arrays of 20 MiB by default come to some KiB.
  EXPECT_GT(CheckLeastLimit(SumsOfAMatrix()), 4 << 20);
}

// Sixteen MiB on each of four devices change from rows to columns.
CourseRequest Transposed() {
  const std::vector<Axis> axes = {{"x", 4}};
  CourseRequest course = RequestOf({.axes = axes,
                                    .shape = Shape::Create({{4096, 4096}}).value(),
                                    .item_bytes = 4,
                                    .source = EndOf(*ParseLayout("[x, -]"), axes).value(),
                                    .destination = EndOf(*ParseLayout("[-, x]"), axes).value()},
                                   {.devices_of_host = 2});
  course.request.redistribution.release_source = true;
  course.request.binding = BindingMode::kInPlace;
  return course;
}

TEST(PlanRedistribution, ASourceThatIsReleasedNeedNotBeThereBesideTheDestination) {
  constexpr int64_t kTiles = 16 << 20;
  CourseRequest course = Transposed();
  EXPECT_LT(PeakOf(course), 2 * kTiles);
  // One move of the whole would do, but releases nothing before its end.
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
  ASSERT_TRUE(plan.has_courses());
  EXPECT_EQ(plan.courses()[0].steps.size(), 1);
  EXPECT_TRUE(plan.courses()[0].releases_source);
  EXPECT_GT(plan.courses()[0].instances, 1);
  // More instances, fewer of them at a time.
  EXPECT_OK(PlanWithin(course, kTiles + (1 << 20)));
  const absl::Status refused = PlanWithin(course, kTiles);
  ASSERT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted));
  const int64_t least = NumberAfter("expected at least ", refused.message());
  EXPECT_OK(PlanWithin(course, least));
  EXPECT_THAT(PlanWithin(course, least - 1), StatusIs(absl::StatusCode::kResourceExhausted));
  course.request.redistribution.release_source = false;
  EXPECT_EQ(PeakOf(course), 2 * kTiles);
}

TEST(PlanRedistribution, ASourceThatIsToStayIsNotReleased) {
  CourseRequest course = Transposed();
  course.request.binding = BindingMode::kShadow;
  EXPECT_THAT(PlanOf(course), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("release_source: expected binding in_place")));
  course = Transposed();
  course.request.shared_storage = true;
  EXPECT_THAT(PlanOf(course),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("of one storage")));
}

// Plans that say so nevertheless are refused by the controller and by each worker.
TEST(PlanRedistribution, ACourseThatReleasesASourceUnderShadowIsRefusedOnBothSides) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(Transposed()));
  Plan::Spec spec = plan.spec();
  spec.binding = BindingMode::kShadow;
  ASSERT_OK_AND_ASSIGN(const Plan shadow, Plan::Create(std::move(spec)));
  EXPECT_THAT(Prove(shadow),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found binding shadow")));
  ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> parts,
                       CutParts(shadow, {shadow.tensors().devices()}));
  ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(parts[0].tensors()));
  EXPECT_THAT(ProvePart(parts[0], slicing),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found binding shadow")));
}

TEST(PlanRedistribution, WithoutMemoryBetweenStepsItIsOneMove) {
  const std::vector<Axis> axes = {{"x", 2}, {"y", 3}};
  const RedistributionRequest request{.axes = axes,
                                      .shape = Shape::Create({{96, 96}}).value(),
                                      .item_bytes = 4,
                                      .source = EndOf(*ParseLayout("[x, y]"), axes).value(),
                                      .destination = EndOf(*ParseLayout("[y, x]"), axes).value()};
  CourseRequest course = RequestOf(request, {.devices_of_host = 2});
  course.request.redistribution.no_relays = true;
  ASSERT_OK_AND_ASSIGN(const Plan steps, PlanOf(course));
  EXPECT_TRUE(steps.has_courses());
  course.request.device_bytes_max = 3 * 96 * 96 * 4 / 6;
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
  EXPECT_FALSE(plan.has_courses());
  EXPECT_OK(Prove(plan, {.device_bytes_max = course.request.device_bytes_max}));
}

TEST(PlanRedistribution, RandomPlansOfGpusAreProven) {
  const uint64_t seed = FromEnvironment("CROSSMESH_SEED", 500'000);
  int64_t with_courses = 0;
  const int64_t cases = RandomCases(300);
  for (int64_t i = 0; i < cases && !HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
    ASSERT_OK_AND_ASSIGN(const Plan plan,
                         PlanOf(RandomCourseRequest(seed + i, i % 2 == 0, {.gpus = true})));
    EXPECT_OK(Prove(plan));
    EXPECT_GE(plan.figures().predicted_seconds, plan.figures().bound.seconds);
    with_courses += plan.has_courses() ? 1 : 0;
    for (const Course<Plan>& course : plan.courses()) {
      for (const auto& step : course.steps) {
        EXPECT_FALSE(step.move->spec().m2n);
        EXPECT_EQ(step.move->spec().broadcast_groups.size(), 0);
      }
    }
  }
  if (cases >= 300) EXPECT_GT(with_courses, 50);
}

// So GPUs of a worker are given the parts of their devices.
TEST(PlanRedistribution, APartOfAPartIsThatOfAWorkerWithTheseDevicesAlone) {
  int64_t with_courses = 0;
  for (uint64_t seed = 600'000; seed < 600'120 && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(RandomCourseRequest(seed, true)));
    const std::vector<DeviceId>& devices = plan.tensors().devices();
    std::vector<std::vector<DeviceId>> each_alone;
    for (const DeviceId& device : devices) each_alone.push_back({device});
    ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> alone, CutParts(plan, each_alone));
    ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> whole, CutParts(plan, {devices}));
    for (DeviceRank device = 0; device < std::ssize(devices); ++device) {
      ASSERT_OK_AND_ASSIGN(const WorkerPart cut, CutPart(whole[0], {device}));
      EXPECT_EQ(cut.digest(), alone[device].digest());
    }
    with_courses += plan.has_courses() ? 1 : 0;
  }
  EXPECT_GT(with_courses, 10);
}

// One leg follows the other there, so nothing overlaps.
TEST(PlanRedistribution, AGpuHasArraysOfOneInstanceAndTakesAllStepsOfEach) {
  CourseRequest course = SumsOfAMatrix();
  PutOnGpus(course.request);
  course.request.device_bytes_max = (16 << 20) + 2 * (4 << 20) + (1 << 20);
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanRedistribution(course.request));
  EXPECT_OK(Prove(plan, {.device_bytes_max = course.request.device_bytes_max}));
  ASSERT_EQ(plan.courses().size(), 1U);
  const Course<Plan>& of_plan = plan.courses()[0];
  EXPECT_GT(of_plan.instances, 1);
  EXPECT_EQ(of_plan.buffers, 1);
  double once = 0;
  for (const auto& step : of_plan.steps) once += step.move->figures().predicted_seconds;
  EXPECT_DOUBLE_EQ(plan.figures().predicted_seconds, of_plan.instances * once);
}

// Over two hosts of two devices: half of each array crosses between hosts to be summed, and as much
// of the sums comes back. The two steps share the NICs.
TEST(PlanRedistribution, APredictionCountsTheBytesOfAllInstancesOverTheShareOfANic) {
  constexpr int64_t kNicRate = 4 << 20;
  const std::vector<Axis> axes = {{"host", 2}, {"device", 2}};
  const std::vector<std::string> partial = {"host", "device"};
  const RedistributionRequest request{
      .axes = axes,
      .shape = Shape::Create({{2048, 2048}}).value(),
      .item_bytes = 4,
      .source = EndOf(*ParseLayout("[-, -]"), axes, partial).value(),
      .destination = EndOf(*ParseLayout("[-, -]"), axes).value()};
  CourseRequest course = RequestOf(request, {.devices_of_host = 2});
  ASSERT_OK_AND_ASSIGN(
      course.request.topology,
      Topology::Create({{"h0", {{"n", kNicRate, kNicRate}}}, {"h1", {{"n", kNicRate, kNicRate}}}},
                       {}));
  ASSERT_OK_AND_ASSIGN(const Plan whole, PlanOf(course));
  const PlanFigures& figures = whole.figures();
  EXPECT_EQ(figures.network_bytes, 2 * (16 << 20));
  EXPECT_EQ(figures.busiest_host_bytes, 16 << 20);
  EXPECT_NEAR(figures.predicted_seconds, 4, 0.01);
  course.request.nic_share = 0.5;
  ASSERT_OK_AND_ASSIGN(const Plan half, PlanOf(course));
  EXPECT_NEAR(half.figures().predicted_seconds, 8, 0.02);
}

// What a course says is proven by the controller, and by each worker.
TEST(PlanRedistribution, ACourseThatTakesATensorTwiceIsRefusedOnBothSides) {
  CourseRequest course = SumsOfAMatrix();
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
  std::vector<Course<Plan>> courses = plan.courses();
  courses[0].instances *= 2;
  courses[0].tensors.insert(courses[0].tensors.end(), courses[0].tensors.begin(),
                            courses[0].tensors.end());
  Plan::Spec spec = plan.spec();
  spec.courses = std::make_shared<const std::vector<Course<Plan>>>(std::move(courses));
  ASSERT_OK_AND_ASSIGN(const Plan twice, Plan::Create(std::move(spec)));
  EXPECT_THAT(Prove(twice), StatusIs(absl::StatusCode::kInternal, HasSubstr("found again")));
  ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> parts,
                       CutParts(twice, {twice.tensors().devices()}));
  ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(parts[0].tensors()));
  EXPECT_THAT(ProvePart(parts[0], slicing),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("found again")));
}

}  // namespace
}  // namespace crossmesh
