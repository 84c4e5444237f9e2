// Plans that join GPUs and host memory: of the first worker GPUs and host memory, of another one
// host memory. What GPUs can be served over a communicator goes over NCCL, the rest by bounce
// buffers. CROSSMESH_SEED and CROSSMESH_CASES choose what random plans are run.

#include "worker/gpu/tasks/mixed_task_runner.h"

#include "common/plan/proof.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/tables.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/reshard/plan_reshard.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/testing/random_case.h"
#include "worker/gpu/protocol/testing/gpu_requests_of_tests.h"
#include "worker/gpu/tasks/gpu_task_runner.h"
#include "worker/gpu/tasks/testing/bridged_workers.h"

#include <algorithm>
#include <array>
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

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// a.0 and b.0 are GPUs; all others are host memory.
Plan PlanOf(TensorTable tensors, BindingMode binding = BindingMode::kShadow) {
  ReshardRequest request;
  request.tensors = std::make_shared<const TensorTable>(std::move(tensors));
  request.binding = binding;
  std::vector<Host> hosts;
  for (const std::string& name : request.tensors->hosts()) {
    Host& host =
        hosts.emplace_back(Host{.name = name, .nics = {{"n", 1'000'000'000, 1'000'000'000, 0, 0}}});
    if (name == "a" || name == "b") {
      host.gpus.push_back({0, "n", 2'000'000'000, 2'000'000'000, 4'000'000'000});
    }
  }
  request.topology = *Topology::Create(std::move(hosts), {});
  absl::StatusOr<Plan> plan = PlanReshard(request);
  CHECK_OK(plan);
  CHECK_OK(Prove(*plan));
  return *std::move(plan);
}

// What the controller would have a communicator for.
std::vector<DeviceRank> GpuRanks(const Plan& plan) {
  std::vector<DeviceRank> ranks;
  const std::vector<DeviceRank>& over_gpus = plan.spec().over_gpus;
  const auto add = [&](DeviceRank receiver, DeviceRank device) {
    if (std::ranges::binary_search(over_gpus, receiver)) ranks.push_back(device);
  };
  for (const Hop& hop : plan.hops()) {
    add(hop.to, hop.from);
    add(hop.to, hop.to);
  }
  for (const LocalCopy& copy : plan.copies()) add(copy.device, copy.device);
  std::ranges::sort(ranks);
  const auto repeated = std::ranges::unique(ranks);
  ranks.erase(repeated.begin(), repeated.end());
  return ranks;
}

class MixedTaskRunnerTest : public testing::Test {
 protected:
  // `faults` of all processes.
  void Open(const std::string& faults = "") {
    workers_.gpus().options.process.environment.push_back("CROSSMESH_STANDIN_FAULTS=" + faults);
    ASSERT_OK(workers_.Open());
    StandInGpus& gpus = workers_.gpus();
    gpu_runner_ = std::make_unique<GpuTaskRunner>(gpus.loop(), gpus.devices(), workers_.bridge());
    runner_ = std::make_unique<MixedTaskRunner>(gpus.loop(), *gpu_runner_, workers_.bridge());
    ASSERT_OK_AND_ASSIGN(communicator_, gpus.MakeCommunicator());
  }
  void TearDown() override {
    workers_.gpus().RunUntil([&] { return workers_.bridge().bounce_bytes() == 0; });
    workers_.gpus().Stop();
    EXPECT_EQ(workers_.gpus().Violations(), "");
  }

  // Of the first worker, whose communicator is of a.0 and b.0.
  TaskSpec SpecOf(const MixedMemory& memory, const Plan& plan, const TaskKey& key) const {
    TaskSpec spec = memory.SpecOf(0, key);
    spec.communicators = {{.key = communicator_, .devices = GpuRanks(plan)}};
    spec.stall_limit = absl::Seconds(30);
    return spec;
  }
  bool IsGpu(const Plan& plan, size_t rank) {
    return workers_.gpus().devices().Has(plan.tensors().devices()[rank]);
  }
  // Both workers; every element arrives, and nothing else is written.
  void ExpectMoves(const Plan& plan, std::vector<int32_t> worker_of_device, uint64_t operation) {
    for (size_t rank = 0; rank < worker_of_device.size(); ++rank) {
      if (IsGpu(plan, rank)) worker_of_device[rank] = 0;
    }
    ASSERT_OK_AND_ASSIGN(const auto memory, MixedMemory::Create(plan, worker_of_device, workers_));
    const TaskKey key = {.operation = operation, .epoch = 1};
    std::array<TaskReports, 2> reports;
    ASSERT_OK(runner_->Start(SpecOf(*memory, plan, key), reports[0]));
    ASSERT_OK(workers_.runner(1).Start(memory->SpecOf(1, key), reports[1]));
    workers_.gpus().RunUntil([&] { return reports[0].task && reports[1].task; });
    for (const TaskReports& of_worker : reports) {
      EXPECT_OK(of_worker.task->status);
      EXPECT_EQ(of_worker.devices.size(), of_worker.task->devices.size());
      for (const DeviceReport& device : of_worker.devices) {
        EXPECT_OK(device.status);
        EXPECT_OK(memory->CheckDestination(device.device));
      }
    }
    ExpectEachDestinationOnce(plan, worker_of_device, reports);
    EXPECT_OK(memory->CheckUntouched());
    EXPECT_THAT(reports[0].task->gpu_libraries, Contains(HasSubstr("NCCL")));
  }
  static void ExpectEachDestinationOnce(const Plan& plan, const std::vector<int32_t>& workers,
                                        std::span<const TaskReports> reports) {
    for (DeviceRank device = 0; device < std::ssize(workers); ++device) {
      const int64_t wanted = plan.tensors().replica_of(device) >= 0 ? 1 : 0;
      EXPECT_EQ(std::ranges::count(reports[workers[device]].devices, device, &DeviceReport::device),
                wanted)
          << ToString(plan.tensors().devices()[device]);
    }
  }

  // From a.0 to b.0, over GPUs, and to c.0 of the other worker, by host memory.
  void MakeReplicas() {
    plan_.emplace(PlanOf(TableOf({{.shape = "[300000]",
                                   .source_mesh = "x=1 on a.0",
                                   .source = "[-]",
                                   .destination_mesh = "r=2 on b.0,c.0",
                                   .destination = "[-]",
                                   .type = DataType::kU8}},
                                 {"r"})));
    ASSERT_THAT(plan_->spec().over_gpus, ElementsAre(1));
    ASSERT_OK_AND_ASSIGN(memory_, MixedMemory::Create(*plan_, {0, 0, 1}, workers_));
  }
  // The other worker's part of it, which ends whatever becomes of the first one's.
  void StartOther(const TaskKey& key) {
    ASSERT_OK(workers_.runner(1).Start(memory_->SpecOf(1, key), of_other_));
  }
  void AwaitOther() {
    workers_.gpus().RunUntil([&] { return of_other_.task.has_value(); });
  }
  // What comes of the first worker's task; `meanwhile` is called when it was started.
  TaskReports Run(TaskSpec spec, absl::FunctionRef<void()> meanwhile = [] {}) {
    TaskReports reports;
    EXPECT_OK(runner_->Start(std::move(spec), reports));
    EXPECT_FALSE(reports.task.has_value());
    meanwhile();
    workers_.gpus().RunUntil([&] { return reports.task.has_value(); });
    return reports;
  }

  BridgedWorkers workers_;
  std::unique_ptr<GpuTaskRunner> gpu_runner_;
  std::unique_ptr<MixedTaskRunner> runner_;
  CommunicatorKey communicator_;
  std::optional<Plan> plan_;
  std::unique_ptr<MixedMemory> memory_;
  TaskReports of_other_;
};

TEST_F(MixedTaskRunnerTest, EveryElementOfRandomPlansArrives) {
  Open();
  const uint64_t first = FromEnvironment("CROSSMESH_SEED", 1);
  const int64_t cases = RandomCases(60);
  int64_t run = 0;
  for (uint64_t seed = first; run < cases && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed, " CROSSMESH_CASES=1"));
    ASSERT_LT(seed, first + 100 * cases) << "too few tables have both kinds of receivers";
    RandomSource random(seed);
    const Plan plan = PlanOf(RandomTensorTable(random));
    // The communicator is of both GPUs.
    if (GpuRanks(plan).size() != 2) continue;
    ++run;
    ExpectMoves(plan, DealDevices(random, plan, 2), seed);
  }
}

TEST_F(MixedTaskRunnerTest, AGpuSendsOverBothMediaAndItsReplicaOverGpusHasNoBounceBuffer) {
  Open();
  MakeReplicas();
  ExpectMoves(*plan_, {0, 0, 1}, 1);
  ExpectMoves(*plan_, {0, 0, 1}, 2);
}

TEST_F(MixedTaskRunnerTest, WithoutCommunicatorsAllGoesByHostMemory) {
  Open();
  MakeReplicas();
  const TaskKey key = {.operation = 1, .epoch = 1};
  TaskSpec spec = SpecOf(*memory_, *plan_, key);
  spec.communicators.clear();
  StartOther(key);
  const TaskReports reports = Run(std::move(spec));
  EXPECT_OK(reports.task->status);
  EXPECT_THAT(reports.task->gpu_libraries, IsEmpty());
  EXPECT_OK(memory_->CheckDestination(1));
  AwaitOther();
  EXPECT_OK(of_other_.task->status);
}

TEST_F(MixedTaskRunnerTest, AHalfOverGpusThatFailsEndsTheOther) {
  Open();
  MakeReplicas();
  const TaskKey key = {.operation = 1, .epoch = 1};
  TaskSpec spec = SpecOf(*memory_, *plan_, key);
  spec.communicators[0].key.purpose = "another";
  StartOther(key);
  const TaskReports reports = Run(std::move(spec));
  AwaitOther();
  EXPECT_THAT(reports.task->status, StatusIs(absl::StatusCode::kNotFound, HasSubstr("another")));
  EXPECT_THAT(reports.task->broken_devices, UnorderedElementsAre(0, 1));
  ASSERT_THAT(reports.devices, SizeIs(1));
  EXPECT_EQ(reports.devices[0].device, 1);
  EXPECT_FALSE(reports.devices[0].status.ok());
}

TEST_F(MixedTaskRunnerTest, AHalfOverGpusThatIsRefusedEndsTheOther) {
  Open();
  MakeReplicas();
  const TaskKey key = {.operation = 1, .epoch = 1};
  TaskSpec spec = SpecOf(*memory_, *plan_, key);
  spec.communicators[0].devices = {0};  // without b.0
  StartOther(key);
  const TaskReports reports = Run(std::move(spec));
  AwaitOther();
  EXPECT_THAT(reports.task->status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("device b.0: expected a rank in one of 1 communicators")));
  ASSERT_THAT(reports.devices, SizeIs(1));
  EXPECT_EQ(reports.devices[0].device, 1);
  EXPECT_THAT(reports.devices[0].status, StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(MixedTaskRunnerTest, WhatGpusReceiveDoesNotNeedAWorkerOfHostMemory) {
  Open();
  MakeReplicas();
  const TaskKey key = {.operation = 1, .epoch = 1};
  const TaskReports reports = Run(SpecOf(*memory_, *plan_, key), [&] {
    runner_->PeerLost(key, "w1", absl::UnavailableError("no heartbeat"));
    workers_.runner(1).Refuse(key);  // or what was sent to it would be under way for ever
  });
  EXPECT_THAT(reports.task->lost_peers, ElementsAre("w1"));
  EXPECT_THAT(reports.task->broken_devices, IsEmpty());
  ASSERT_THAT(reports.devices, SizeIs(1));
  EXPECT_OK(reports.devices[0].status);
  EXPECT_OK(memory_->CheckDestination(1));
}

TEST_F(MixedTaskRunnerTest, ACancelledTaskEndsBothHalvesWithItsCause) {
  Open("stall_at=2");
  MakeReplicas();
  const TaskKey key = {.operation = 1, .epoch = 1};
  StartOther(key);
  const TaskReports reports = Run(SpecOf(*memory_, *plan_, key), [&] {
    EXPECT_THAT(runner_->MovedBytes(key), testing::Ne(std::nullopt));
    runner_->Cancel(key, absl::CancelledError("enough"));
  });
  EXPECT_THAT(reports.task->status, StatusIs(absl::StatusCode::kCancelled, "enough"));
  EXPECT_THAT(reports.devices, SizeIs(1));
  workers_.gpus().RunUntil([&] { return !runner_->MovedBytes(key).has_value(); });
  for (const char* device : {"a.0", "b.0"}) {
    EXPECT_THAT(workers_.gpus().Call(workers_.gpus()[device],
                                     StopCommunicatorRequest(communicator_, "enough")),
                AnyOf(IsOk(), StatusIs(absl::StatusCode::kNotFound)));
  }
}

}  // namespace
}  // namespace crossmesh
