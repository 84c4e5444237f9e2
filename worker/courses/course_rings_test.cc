// Sums that go round rings of hosts, held to sums that are made at once, and to gathering all
// summands and adding them anew.

#include "common/base/check.h"
#include "common/mesh/layout.h"
#include "common/plan/course.h"
#include "common/plan/testing/random_source.h"
#include "common/plan/worker_part.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/planning/testing/course_requests.h"
#include "worker/courses/course_steps.h"
#include "worker/courses/testing/course_mesh.h"
#include "worker/courses/testing/summands.h"
#include "worker/executor/testing/mesh_runner.h"
#include "worker/executor/testing/random_case.h"
#include "worker/executor/testing/tile_memory.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

bool HasRing(const Plan& plan) { return plan.courses()[0].steps.front().adds_own; }

// Workers to which messages come late and in any order.
MeshRunner::Options Disordered() {
  return WithCourseRunners(
      {.workers = 3, .faults = {.seed = 1, .delay_probability = 0.05, .reorder_channels = true}});
}

// Runs a plan to its end on some of the workers.
void RunRing(const Plan& plan, TileMemory& memory, uint64_t seed, MeshRunner& runner) {
  RandomSource random(seed);
  ASSERT_OK_AND_ASSIGN(const MeshOutcome outcome,
                       runner.Run(plan, DealDevices(random, plan, runner.workers()), memory, {}));
  for (const TaskReport& report : outcome.reports) EXPECT_OK(report.status);
}

// The destination tiles of all devices.
std::vector<std::vector<std::byte>> SumsOf(const Plan& plan, const TileMemory& memory) {
  const TensorTable& tensors = plan.tensors();
  std::vector<std::vector<std::byte>> sums;
  for (DeviceRank device = 0; device < std::ssize(tensors.devices()); ++device) {
    for (int32_t t = 0; t < std::ssize(tensors.group_of_tensor()); ++t) {
      const int32_t group = tensors.group_of_tensor()[t];
      const int64_t bytes = Volume(tensors.TileOf(Side::kDestination, group, device)) *
                            tensors.ItemBytesOf(Side::kDestination, group);
      const std::byte* const tile = memory.tiles(Side::kDestination, device).tensor[t];
      sums.emplace_back(tile, tile + bytes);
    }
  }
  return sums;
}

// Sums that are made in one order and in another one have the same bits.
bool IsOrderless(const CourseRequest& course) {
  const DataType type = course.request.tensors->groups()[0].type;
  const std::string& reduction = course.request.redistribution.reduction;
  return reduction == "min" || reduction == "max" || type == DataType::kI32 ||
         type == DataType::kU8;
}

// Of many random requests those whose sums go round rings, until there are enough of them.
template <typename Body>
void ForRings(uint64_t seed, int64_t cases, Body body) {
  seed = FromEnvironment("CROSSMESH_SEED", seed);
  cases = RandomCases(cases);
  const uint64_t end = seed + static_cast<uint64_t>(10 * cases);
  for (int64_t rings = 0; rings < cases && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed, " CROSSMESH_CASES=1"));
    ASSERT_LT(seed, end) << rings << " rings of " << cases;
    const CourseRequest course = RandomSumRingRequest(seed);
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
    if (!HasRing(plan)) continue;
    ++rings;
    body(seed, course, plan);
  }
}

// Numbers of all magnitudes and NaNs among them.
TEST(CourseRings, WhatHasNoOrderHasTheBitsOfSumsMadeAtOnce) {
  MeshRunner runner(Disordered());
  ForRings(1000, 24, [&](uint64_t seed, const CourseRequest& course, const Plan& plan) {
    if (!IsOrderless(course)) return;
    CourseRequest straight = course;
    straight.request.beside = Beside::kTransfers;
    ASSERT_OK_AND_ASSIGN(const Plan at_once, PlanOf(straight));
    ASSERT_FALSE(HasRing(at_once));
    TileMemory of_ring(plan);
    TileMemory of_straight(at_once);
    FillRandomSummands(course.request.redistribution, plan, of_ring);
    FillRandomSummands(course.request.redistribution, at_once, of_straight);
    RunRing(plan, of_ring, seed, runner);
    RunRing(at_once, of_straight, seed, runner);
    EXPECT_EQ(SumsOf(plan, of_ring), SumsOf(at_once, of_straight));
  });
}

TEST(CourseRings, EverySumIsMade) {
  MeshRunner runner(Disordered());
  ForRings(2000, 40, [&](uint64_t seed, const CourseRequest& course, const Plan& plan) {
    const DataType type = plan.tensors().groups()[0].type;
    if (type != DataType::kF32 && type != DataType::kI32) return;
    TileMemory memory(plan);
    FillSummands(course.request.redistribution, plan, memory);
    RunRing(plan, memory, seed, runner);
    EXPECT_OK(CheckSums(course.request.redistribution, plan, memory));
  });
}

TEST(CourseRings, SummandsAreAddedFromOneHostOnAndOnEveryRunAlike) {
  MeshRunner runner(Disordered());
  ForRings(3000, 60, [&](uint64_t seed, const CourseRequest& course, const Plan& plan) {
    const RedistributionInputs& inputs = course.request.redistribution;
    const bool adds = inputs.reduction == "sum" || inputs.reduction == "mean";
    if (plan.tensors().groups()[0].type != DataType::kF32 || !adds) return;
    std::optional<std::vector<std::vector<std::byte>>> first;
    for (const uint64_t run : {0, 1}) {
      TileMemory memory(plan);
      FillRoundedSummands(inputs, plan, memory);
      RunRing(plan, memory, 2 * seed + run, runner);
      EXPECT_OK(CheckSumsRoundRing(inputs, plan, memory));
      if (first.has_value()) EXPECT_EQ(*first, SumsOf(plan, memory));
      first = SumsOf(plan, memory);
    }
  });
}

// A round that does not come to its end, since what another worker sends is lost.
TEST(CourseRings, ARingThatBreaksLeavesSourcesAsTheyAre) {
  int64_t broken = 0;
  ForRings(4000, 20, [&](uint64_t seed, const CourseRequest& /*course*/, const Plan& plan) {
    TileMemory memory(plan);
    ArrayCount arrays;
    MeshRunner runner(WithCourseRunners(
        {.workers = 3, .faults = {.seed = seed, .drop_probability = 0.1}}, &arrays));
    RandomSource random(seed);
    ASSERT_OK_AND_ASSIGN(const MeshOutcome outcome,
                         runner.Run(plan, DealDevices(random, plan, runner.workers()), memory,
                                    {.stall_limit = absl::Milliseconds(100)}));
    for (const auto& [device, report] : outcome.devices) broken += report.status.ok() ? 0 : 1;
    EXPECT_OK(memory.CheckUntouched());
    arrays.WaitUntilGone();
  });
  if (FromEnvironment("CROSSMESH_SEED", 0) == 0) EXPECT_GT(broken, 5);
}

// A replay would begin before the sources of the one before it were read to the end.
TEST(CourseRings, ARingIsNotReplayed) {
  ForRings(5000, 1, [](uint64_t /*seed*/, const CourseRequest& /*course*/, const Plan& plan) {
    std::vector<Course<Plan>> courses = plan.courses();
    for (Course<Plan>& course : courses) course.instances = 1;
    Plan::Spec spec = plan.spec();
    spec.courses = std::make_shared<const std::vector<Course<Plan>>>(std::move(courses));
    ASSERT_OK_AND_ASSIGN(const Plan once, Plan::Create(std::move(spec)));
    ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> parts,
                         CutParts(once, {once.tensors().devices()}));
    EXPECT_THAT(CheckReplayable(parts[0], 0), StatusIs(absl::StatusCode::kInvalidArgument,
                                                       HasSubstr("found some that go round")));
  });
}

}  // namespace
}  // namespace crossmesh
