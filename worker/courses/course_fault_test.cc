// Redistributions over a faulty network, and ones that are ended: every task ends, sources stay as
// they are, arrays are given back, and a device that is reported complete has the right bytes.

#include "common/base/check.h"
#include "common/plan/testing/random_source.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/planning/testing/course_requests.h"
#include "worker/courses/testing/course_mesh.h"
#include "worker/executor/testing/random_case.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// A random plan with courses, and workers to which its devices were dealt.
struct Case {
  Case(uint64_t seed, MeshRunner::Options options)
      : random(seed),
        plan(WithCourses(seed)),
        memory(plan),
        runner(WithCourseRunners(std::move(options), &arrays)),
        workers(DealDevices(random, plan, runner.workers())) {}

  static Plan WithCourses(uint64_t seed) {
    for (uint64_t draw = 0;; ++draw) {
      absl::StatusOr<Plan> plan = PlanOf(RandomCourseRequest(seed * 1000 + draw, false));
      CHECK_OK(plan);
      if (plan->has_courses()) return *std::move(plan);
    }
  }

  MeshOutcome Run(MeshRunner::RunOptions options = {}) {
    absl::StatusOr<MeshOutcome> outcome = runner.Run(plan, workers, memory, std::move(options));
    CHECK_OK(outcome);
    for (const auto& [device, report] : outcome->devices) {
      if (report.status.ok()) EXPECT_OK(memory.CheckDestination(device));
    }
    EXPECT_OK(memory.CheckUntouched());
    return *std::move(outcome);
  }

  RandomSource random;
  Plan plan;
  TileMemory memory;
  ArrayCount arrays;
  MeshRunner runner;
  const std::vector<int32_t> workers;
};

template <typename Body>
void ForCases(uint64_t seed, int64_t cases, Body body) {
  seed = FromEnvironment("CROSSMESH_SEED", seed);
  cases = RandomCases(cases);
  for (int64_t i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
    body(seed + i);
  }
}

int64_t Failed(const MeshOutcome& outcome) {
  int64_t failed = 0;
  for (const auto& [device, report] : outcome.devices) failed += report.status.ok() ? 0 : 1;
  return failed;
}

TEST(CourseFaults, CorruptionIsFoundByChecksum) {
  int64_t found = 0;
  ForCases(300'000, 60, [&](uint64_t seed) {
    Case one(seed, {.workers = 3, .faults = {.seed = seed, .corrupt_probability = 0.05}});
    found += Failed(one.Run());
  });
  if (FromEnvironment("CROSSMESH_SEED", 0) == 0) EXPECT_GT(found, 50);
}

TEST(CourseFaults, ADroppedMessageEndsInAStall) {
  int64_t failed = 0;
  ForCases(400'000, 12, [&](uint64_t seed) {
    Case one(seed, {.workers = 3, .faults = {.seed = seed, .drop_probability = 0.05}});
    failed += Failed(one.Run({.stall_limit = absl::Milliseconds(200)}));
    one.arrays.WaitUntilGone();
  });
  if (FromEnvironment("CROSSMESH_SEED", 0) == 0) EXPECT_GT(failed, 5);
}

TEST(CourseFaults, AWorkerThatNeverStartsFailsAllThatNeedIt) {
  ForCases(500'000, 12, [&](uint64_t seed) {
    Case one(seed, {.workers = 3});
    const MeshOutcome outcome =
        one.Run({.stall_limit = absl::Milliseconds(200), .absent_worker = 2});
    for (const auto& [device, report] : outcome.devices) {
      if (!report.status.ok()) {
        EXPECT_THAT(report.status, StatusIs(absl::StatusCode::kUnavailable));
      }
    }
    one.arrays.WaitUntilGone();
  });
}

TEST(CourseFaults, ACancelledTaskEndsWithItsCauseAndTheNextOneRuns) {
  int64_t told = 0;
  ForCases(600'000, 40, [&](uint64_t seed) {
    Case one(seed, {.workers = 3, .faults = {.seed = seed, .delay_probability = 0.2}});
    MeshRunner::RunOptions options;
    options.disturb = [](TaskRunner& runner, const TaskKey& key) {
      runner.Cancel(key, absl::CancelledError("a client wants it so"));
    };
    const MeshOutcome outcome = one.Run(std::move(options));
    EXPECT_EQ(std::ranges::count_if(outcome.reports,
                                    [](const TaskReport& report) {
                                      return absl::IsCancelled(report.status) &&
                                             report.status.message() == "a client wants it so";
                                    }),
              1);
    for (const auto& [device, report] : outcome.devices) {
      told += absl::StrContains(report.status.message(), "worker w0 has ended its part") ? 1 : 0;
    }
    one.arrays.WaitUntilGone();
    EXPECT_EQ(Failed(one.Run()), 0);
  });
  // The others do not wait until they find out.
  if (FromEnvironment("CROSSMESH_SEED", 0) == 0) EXPECT_GT(told, 20);
}

// The source tiles of all devices.
std::vector<std::vector<std::byte>> SourcesOf(const Plan& plan, const TileMemory& memory) {
  const TensorTable& tensors = plan.tensors();
  std::vector<std::vector<std::byte>> sources;
  for (DeviceRank device = 0; device < std::ssize(tensors.devices()); ++device) {
    std::vector<std::byte>& of_device = sources.emplace_back();
    const BoundTiles& tiles = memory.tiles(Side::kSource, device);
    for (size_t t = 0; t < tiles.tensor.size(); ++t) {
      if (tiles.tensor[t] == nullptr) continue;
      const int32_t group = tensors.group_of_tensor()[t];
      const int64_t bytes = Volume(tensors.TileOf(Side::kSource, group, device)) *
                            tensors.ItemBytesOf(Side::kSource, group);
      of_device.insert(of_device.end(), tiles.tensor[t], tiles.tensor[t] + bytes);
    }
  }
  return sources;
}

TEST(CourseFaults, ATaskThatEndsEarlyNamesTheSourcesThatItHasReleased) {
  int64_t released = 0;
  int64_t intact = 0;
  ForCases(650'000, 40, [&](uint64_t seed) {
    CourseRequest course = RandomCourseRequest(seed, false);
    course.request.redistribution.release_source = true;
    course.request.binding = BindingMode::kInPlace;
    course.sizes.released_row_elements = 1;
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(course));
    TileMemory memory(plan);
    const std::vector<std::vector<std::byte>> before = SourcesOf(plan, memory);
    RandomSource random(seed);
    MeshRunner runner(
        WithCourseRunners({.workers = 3, .faults = {.seed = seed, .drop_probability = 0.03}}));
    const std::vector<int32_t> workers = DealDevices(random, plan, runner.workers());
    ASSERT_OK_AND_ASSIGN(
        const MeshOutcome outcome,
        runner.Run(plan, workers, memory, {.stall_limit = absl::Milliseconds(100)}));
    const std::vector<std::vector<std::byte>> after = SourcesOf(plan, memory);
    std::vector<DeviceRank> named;
    for (const TaskReport& report : outcome.reports) {
      named.insert(named.end(), report.released_sources.begin(), report.released_sources.end());
    }
    for (DeviceRank device = 0; device < std::ssize(before); ++device) {
      const bool is_named = std::ranges::find(named, device) != named.end();
      if (!is_named) EXPECT_EQ(before[device], after[device]) << "device " << device;
      if (!before[device].empty()) (is_named ? released : intact) += 1;
    }
  });
  if (FromEnvironment("CROSSMESH_SEED", 0) != 0) return;
  EXPECT_GT(released, 20);
  EXPECT_GT(intact, 20);
}

TEST(CourseFaults, AWorkerThatIsGivenUpEndsTheTask) {
  ForCases(700'000, 20, [&](uint64_t seed) {
    Case one(seed, {.workers = 3, .faults = {.seed = seed, .delay_probability = 0.2}});
    MeshRunner::RunOptions options;
    options.disturb = [](TaskRunner& runner, const TaskKey& key) {
      runner.PeerLost(key, "w1", absl::UnavailableError("worker w1 is lost"));
    };
    one.Run(std::move(options));
    one.arrays.WaitUntilGone();
    EXPECT_EQ(Failed(one.Run()), 0);
  });
}

TEST(CourseFaults, ADeadlineThatPassesEndsTheTask) {
  Case one(800'000, {.workers = 3});
  const MeshOutcome outcome = one.Run(
      {.deadline = absl::Milliseconds(50), .stall_limit = absl::Seconds(1), .absent_worker = 1});
  // Whoever is first tells the other.
  EXPECT_GE(std::ranges::count_if(
                outcome.reports,
                [](const TaskReport& report) { return absl::IsDeadlineExceeded(report.status); }),
            1);
  for (const auto& [device, report] : outcome.devices) EXPECT_FALSE(report.status.ok());
}

TEST(CourseFaults, WithoutMemoryForArraysNothingStarts) {
  Case one(900'000, {.workers = 2});
  one.arrays.Limit(0);
  EXPECT_THAT(one.runner.Run(one.plan, one.workers, one.memory, {}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("arrays between steps")));
}

}  // namespace
}  // namespace crossmesh
