// Redistributions in several steps of GPUs and host memory of one worker, and host memory of
// another: what GPUs exchange among themselves alone goes over NCCL, all else by bounce buffers.
// CROSSMESH_SEED and CROSSMESH_CASES choose what random ones are run.

#include "common/base/check.h"
#include "common/plan/proof.h"
#include "common/plan/testing/random_source.h"
#include "common/testing/random_cases.h"
#include "common/testing/send_signal.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/planning/testing/course_requests.h"
#include "worker/courses/counted_course_runner.h"
#include "worker/courses/testing/summands.h"
#include "worker/executor/testing/random_case.h"
#include "worker/gpu/protocol/testing/gpu_requests_of_tests.h"
#include "worker/gpu/tasks/gpu_task_runner.h"
#include "worker/gpu/tasks/mixed_task_runner.h"
#include "worker/gpu/tasks/testing/bridged_workers.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Of summands over one axis, each of [rows, 48] in F32. h0.0 and h1.0 are GPUs, and one replica; so
// a sum over x joins no GPU and host memory, and one over replicas does.
CourseRequest SumsOf(const std::string& partial, int64_t rows = 32) {
  const Mesh mesh = *ParseMesh("x=2,replica=2 on h0.0-1,h1.0-1");
  auto table = TensorTable::Create({.sources = {{mesh, *ParseLayout("[-, -]")}},
                                    .destinations = {{mesh, *ParseLayout("[-, -]")}},
                                    .groups = {{.shape = *Shape::Create({{rows, 48}})}},
                                    .group_of_tensor = {0}});
  CHECK_OK(table);
  CourseRequest made;
  made.request = {.tensors = std::make_shared<const TensorTable>(*std::move(table)),
                  .strategy = Strategy::kRedistribute};
  made.request.redistribution.source_partial = {partial};
  made.request.redistribution.reduction = "sum";
  made.sizes = {.array_bytes = 2048, .row_elements = 1};
  PutOnMixedHosts(made.request);
  return made;
}

class MixedCourseTest : public testing::Test {
 protected:
  // `faults` of all processes.
  void Open(const std::string& faults = "") {
    gpus().options.process.environment.push_back("CROSSMESH_STANDIN_FAULTS=" + faults);
    ASSERT_OK(workers_.Open());
    gpu_runner_ =
        std::make_unique<GpuTaskRunner>(gpus().loop(), gpus().devices(), workers_.bridge());
    counted_ = std::make_unique<CountedCourseRunner>(CountedCourseRunner::Ports{
        .loop = gpus().loop(), .on_gpus = *gpu_runner_, .counters = workers_.courses(0)});
    runner_ = std::make_unique<MixedTaskRunner>(gpus().loop(), *counted_, workers_.bridge());
  }
  void TearDown() override {
    gpus().RunUntil([&] {
      return workers_.bridge().bounce_bytes() == 0 && workers_.courses(0).array_bytes == 0 &&
             workers_.courses(1).array_bytes == 0;
    });
    gpus().Stop();
    EXPECT_EQ(gpus().Violations(), "");
  }

  StandInGpus& gpus() { return workers_.gpus(); }
  bool IsGpu(const Plan& plan, size_t rank) {
    return gpus().devices().Has(plan.tensors().devices()[rank]);
  }

  // The plan of a request, proven, between tiles that are filled with summands if it has any.
  void Use(CourseRequest course, std::vector<int32_t> worker_of_device) {
    course_ = std::move(course);
    ASSERT_OK_AND_ASSIGN(Plan plan, PlanOf(course_));
    ASSERT_OK(Prove(plan)) << ToText(plan, 4);
    plan_ = std::make_unique<const Plan>(std::move(plan));
    for (size_t rank = 0; rank < worker_of_device.size(); ++rank) {
      if (IsGpu(*plan_, rank)) worker_of_device[rank] = 0;
    }
    worker_of_device_ = worker_of_device;
    ASSERT_OK_AND_ASSIGN(memory_, MixedMemory::Create(*plan_, worker_of_device, workers_,
                                                      [&](const TileMemory& memory) {
                                                        if (sums()) Fill(memory);
                                                      }));
  }
  bool sums() const { return !course_.request.redistribution.source_partial.empty(); }
  void Fill(const TileMemory& memory) const {
    FillSummands(course_.request.redistribution, *plan_, memory);
  }

  // With a communicator of the GPUs that the plan has one for.
  TaskSpec SpecOf(int32_t worker, const TaskKey& key) {
    TaskSpec spec = memory_->SpecOf(worker, key);
    const std::vector<DeviceRank>& over_gpus = plan_->spec().over_gpus;
    if (worker != 0 || over_gpus.empty()) return spec;
    std::vector<DeviceId> devices;
    for (const DeviceRank gpu : over_gpus) devices.push_back(plan_->tensors().devices()[gpu]);
    std::optional<CommunicatorKey>& communicator = communicators_[devices];
    if (!communicator.has_value()) {
      auto made = gpus().MakeCommunicator(devices);
      CHECK_OK(made);
      communicator = *std::move(made);
    }
    spec.communicators = {{.key = *communicator, .devices = over_gpus}};
    return spec;
  }
  // What both workers make of it; `meanwhile` is called when both were started.
  std::array<TaskReports, 2> Run(uint64_t operation, absl::FunctionRef<void()> meanwhile = [] {}) {
    const TaskKey key = KeyOf(operation);
    std::array<TaskReports, 2> reports;
    EXPECT_OK(runner_->Start(SpecOf(0, key), reports[0]));
    EXPECT_OK(workers_.runner(1).Start(SpecOf(1, key), reports[1]));
    meanwhile();
    gpus().RunUntil([&] { return reports[0].task && reports[1].task; });
    return reports;
  }
  static TaskKey KeyOf(uint64_t operation) { return {.operation = operation, .epoch = 1}; }

  // Every element arrives, each destination is reported once, and nothing else is written.
  void ExpectMoves(uint64_t operation) {
    const std::array<TaskReports, 2> reports = Run(operation);
    for (const TaskReports& of_worker : reports) {
      EXPECT_OK(of_worker.task->status);
      EXPECT_EQ(of_worker.devices.size(), of_worker.task->devices.size());
      for (const DeviceReport& device : of_worker.devices) {
        EXPECT_OK(device.status);
        if (!sums()) EXPECT_OK(memory_->CheckDestination(device.device));
      }
    }
    for (DeviceRank device = 0; device < std::ssize(worker_of_device_); ++device) {
      const int64_t wanted = plan_->tensors().replica_of(device) >= 0 ? 1 : 0;
      EXPECT_EQ(std::ranges::count(reports[worker_of_device_[device]].devices, device,
                                   &DeviceReport::device),
                wanted)
          << ToString(plan_->tensors().devices()[device]);
    }
    if (sums()) {
      ASSERT_OK_AND_ASSIGN(const TileMemory* const memory, memory_->InHostMemory());
      EXPECT_OK(CheckSums(course_.request.redistribution, *plan_, *memory));
    } else {
      EXPECT_OK(memory_->CheckUntouched());
    }
    const bool over_gpus = !plan_->spec().over_gpus.empty();
    EXPECT_EQ(reports[0].task->gpu_libraries.empty(), !over_gpus);
  }
  // Of those that take steps, some are in two halves.
  void RunCases(bool partial, int64_t cases, uint64_t seed) {
    cases = RandomCases(cases);
    seed = FromEnvironment("CROSSMESH_SEED", seed);
    int64_t halved = 0;
    for (int64_t run = 0; run < cases && !HasFailure(); ++seed) {
      SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed, " CROSSMESH_CASES=1"));
      const CourseRequest course = RandomMixedRequest(seed, partial);
      const absl::StatusOr<Plan> plan = PlanOf(course);
      if (absl::IsUnimplemented(plan.status())) continue;  // by the method
      ASSERT_OK(plan.status());
      if (!plan->has_courses()) continue;
      ++run;
      if (!plan->spec().over_gpus.empty()) ++halved;
      RandomSource random(seed);
      Use(course, DealDevices(random, *plan, 2));
      ExpectMoves(seed);
    }
    if (cases < 20) return;
    EXPECT_GT(halved, cases / 5);
    EXPECT_LT(halved, cases);
  }

  BridgedWorkers workers_{{"h0.0", "h1.0", "h2.0", "h3.0"}};
  std::unique_ptr<GpuTaskRunner> gpu_runner_;
  std::unique_ptr<CountedCourseRunner> counted_;
  std::unique_ptr<MixedTaskRunner> runner_;
  std::map<std::vector<DeviceId>, std::optional<CommunicatorKey>> communicators_;
  CourseRequest course_;
  std::unique_ptr<const Plan> plan_;
  std::vector<int32_t> worker_of_device_;
  std::unique_ptr<MixedMemory> memory_;
};

TEST_F(MixedCourseTest, EveryElementOfRandomRedistributionsArrives) {
  Open();
  RunCases(false, 60, 1);
}

TEST_F(MixedCourseTest, EverySumIsMade) {
  Open();
  RunCases(true, 60, 100'000);
}

TEST_F(MixedCourseTest, WhatGpusAloneReduceNeedsNoBounceBuffer) {
  Open();
  Use(SumsOf("x"), {0, 0, 0, 1});
  ASSERT_THAT(plan_->spec().over_gpus, ElementsAre(0, 2));
  for (uint64_t operation = 1; operation < 4; ++operation) ExpectMoves(operation);
  const Course<Plan>& course = plan_->courses()[0];
  ASSERT_GT(course.instances, 1);
  // Each half counts its own steps.
  EXPECT_EQ(workers_.courses(0).all_steps_moved(),
            3 * 2 * course.instances * std::ssize(course.steps));
  Run(4, [&] { EXPECT_EQ(workers_.bridge().bounce_bytes(), 0); });
}

TEST_F(MixedCourseTest, ASumOverBothIsMadeInBounceBuffersAsOftenAsIsWanted) {
  Open();
  Use(SumsOf("replica"), {0, 0, 0, 1});
  ASSERT_THAT(plan_->spec().over_gpus, IsEmpty());
  for (uint64_t operation = 1; operation < 4; ++operation) ExpectMoves(operation);
  const Course<Plan>& course = plan_->courses()[0];
  EXPECT_EQ(workers_.courses(0).all_steps_moved(), 3 * course.instances * std::ssize(course.steps));
}

TEST_F(MixedCourseTest, ASumOverwritesItsSummandWhereBothAreOneStorage) {
  Open();
  CourseRequest course = SumsOf("replica");
  course.request.binding = BindingMode::kInPlace;
  course.request.shared_storage = true;
  Use(std::move(course), {0, 0, 0, 1});
  ExpectMoves(1);
}

TEST_F(MixedCourseTest, WithoutCommunicatorsAllGoesByHostMemory) {
  Open();
  Use(SumsOf("x"), {0, 0, 0, 1});
  ASSERT_THAT(plan_->spec().over_gpus, ElementsAre(0, 2));
  std::array<TaskReports, 2> reports;
  for (const int32_t worker : {0, 1}) {
    TaskSpec spec = memory_->SpecOf(worker, KeyOf(1));
    TaskRunner& runner = worker == 0 ? static_cast<TaskRunner&>(*runner_) : workers_.runner(1);
    ASSERT_OK(runner.Start(std::move(spec), reports[worker]));
  }
  EXPECT_GT(workers_.bridge().bounce_bytes(), 0);
  gpus().RunUntil([&] { return reports[0].task && reports[1].task; });
  EXPECT_OK(reports[0].task->status);
  EXPECT_OK(reports[1].task->status);
  EXPECT_THAT(reports[0].task->gpu_libraries, IsEmpty());
  ASSERT_OK_AND_ASSIGN(const TileMemory* const memory, memory_->InHostMemory());
  EXPECT_OK(CheckSums(course_.request.redistribution, *plan_, *memory));
}

TEST_F(MixedCourseTest, AProcessThatIsKilledWhileItLoadsEndsTheTaskEverywhere) {
  Open();
  Use(SumsOf("replica"), {0, 0, 0, 1});
  SendSignal(gpus()["h1.0"].process().pid(), SIGSTOP);
  const std::array<TaskReports, 2> reports = Run(1, [&] {
    gpus().RunUntil([&] { return workers_.bridge().bounce_bytes() > 0; });
    SendSignal(gpus()["h1.0"].process().pid(), SIGKILL);
  });
  EXPECT_THAT(reports[0].task->status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("device h1.0")));
  EXPECT_THAT(reports[0].devices, Each(Field(&DeviceReport::status, Not(IsOk()))));
  EXPECT_THAT(reports[1].devices, Each(Field(&DeviceReport::status, Not(IsOk()))));
  EXPECT_EQ(workers_.courses(0).all_steps_moved(), 0);
  gpus().RunUntil([&] { return gpus()["h1.0"].state() == GpuDevice::State::kUp; });
  ExpectMoves(2);
}

TEST_F(MixedCourseTest, AHalfOverGpusThatFailsEndsTheOther) {
  Open("stall_at=20");
  // So much that the half by host memory does not end before.
  Use(SumsOf("x", 4096), {0, 0, 0, 1});
  const std::array<TaskReports, 2> reports =
      Run(1, [&] { SendSignal(gpus()["h1.0"].process().pid(), SIGKILL); });
  EXPECT_THAT(reports[0].task->status,
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("device h1.0")));
  for (const DeviceReport& device : reports[0].devices) {
    if (IsGpu(*plan_, device.device)) EXPECT_FALSE(device.status.ok());
  }
}

TEST_F(MixedCourseTest, AWorkerThatIsKilledBetweenStepsEndsTheTask) {
  Open();
  Use(SumsOf("replica", 1024), {0, 0, 0, 1});
  const TaskKey key = KeyOf(1);
  TaskReports reports, of_other;
  ASSERT_OK(runner_->Start(SpecOf(0, key), reports));
  ASSERT_OK(workers_.runner(1).Start(SpecOf(1, key), of_other));
  gpus().RunUntil([&] { return workers_.courses(0).all_steps_moved() > 0; });
  ASSERT_FALSE(reports.task.has_value());
  workers_.fabric().Kill(workers_.address(1));
  gpus().RunUntil([&] { return reports.task.has_value(); });
  EXPECT_THAT(reports.task->lost_peers, ElementsAre("w1"));
  EXPECT_THAT(reports.devices, Each(Field(&DeviceReport::status, Not(IsOk()))));
}

TEST_F(MixedCourseTest, ACancelBetweenStepsEndsItWithItsCause) {
  Open();
  Use(SumsOf("replica", 1024), {0, 0, 0, 1});
  const TaskKey key = KeyOf(1);
  TaskReports reports, of_other;
  ASSERT_OK(runner_->Start(SpecOf(0, key), reports));
  ASSERT_OK(workers_.runner(1).Start(SpecOf(1, key), of_other));
  gpus().RunUntil([&] { return workers_.courses(0).all_steps_moved() > 0; });
  ASSERT_FALSE(reports.task.has_value());
  runner_->Cancel(key, absl::CancelledError("a client wants it so"));
  gpus().RunUntil([&] { return reports.task && of_other.task; });
  EXPECT_THAT(reports.task->status, StatusIs(absl::StatusCode::kCancelled, "a client wants it so"));
  EXPECT_THAT(of_other.devices, Each(Field(&DeviceReport::status, Not(IsOk()))));
  gpus().RunUntil([&] { return workers_.bridge().bounce_bytes() == 0; });
  Use(SumsOf("replica"), {0, 0, 0, 1});
  ExpectMoves(2);
}

TEST_F(MixedCourseTest, LoadsEndAtTheDeadline) {
  Open();
  Use(SumsOf("replica"), {0, 0, 0, 1});
  SendSignal(gpus()["h0.0"].process().pid(), SIGSTOP);
  TaskSpec spec = SpecOf(0, KeyOf(1));
  spec.deadline = absl::Milliseconds(100);
  TaskReports reports, of_other;
  ASSERT_OK(runner_->Start(std::move(spec), reports));
  ASSERT_OK(workers_.runner(1).Start(SpecOf(1, KeyOf(1)), of_other));
  // Its peer learns of it from the course, which has the same deadline.
  gpus().RunUntil([&] { return of_other.task.has_value(); });
  EXPECT_FALSE(reports.task.has_value());
  SendSignal(gpus()["h0.0"].process().pid(), SIGCONT);
  gpus().RunUntil([&] { return reports.task.has_value(); });
  EXPECT_THAT(reports.task->status, StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(MixedCourseTest, BytesThatChangeOnTheWayToABounceBufferAreFound) {
  Open("corrupt_copy_at=1");
  Use(SumsOf("replica"), {0, 0, 0, 1});
  const std::array<TaskReports, 2> reports = Run(1);
  EXPECT_THAT(reports[0].task->status,
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("expected the same hash")));
  EXPECT_THAT(reports[1].devices, Each(Field(&DeviceReport::status, Not(IsOk()))));
}

TEST_F(MixedCourseTest, BounceBuffersAndArraysThatTakeTooMuchMemoryAreRefused) {
  Open();
  Use(SumsOf("replica", BridgedWorkers::kBounceBytesMax / (4 * 48)), {0, 0, 0, 1});
  TaskReports never;
  EXPECT_THAT(runner_->Start(SpecOf(0, KeyOf(1)), never),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("device h"), HasSubstr("expected at most"))));
  EXPECT_EQ(workers_.bridge().bounce_bytes(), 0);
  EXPECT_EQ(workers_.courses(0).array_bytes, 0);
}

}  // namespace
}  // namespace crossmesh
