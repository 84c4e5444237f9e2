// Random plans on devices of all kinds: GPUs and host memory of one worker, host memory of another.
// Every destination element is right, nothing else is written. CROSSMESH_SEED and CROSSMESH_CASES
// choose what is run.

#include "common/plan/testing/random_source.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/testing/random_case.h"
#include "worker/gpu/tasks/testing/bridged_workers.h"

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

void RunCases(Plan (*make_plan)(RandomSource&), int64_t cases, uint64_t seed) {
  seed = FromEnvironment("CROSSMESH_SEED", seed);
  cases = RandomCases(cases);
  BridgedWorkers workers;
  ASSERT_OK(workers.Open());
  for (int64_t i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
    RandomSource random(seed + i);
    const Plan plan = make_plan(random);
    std::vector<int32_t> worker_of_device = DealDevices(random, plan, 2);
    for (size_t rank = 0; rank < worker_of_device.size(); ++rank) {
      if (workers.gpus().devices().Has(plan.tensors().devices()[rank])) worker_of_device[rank] = 0;
    }
    ASSERT_OK_AND_ASSIGN(const auto memory, MixedMemory::Create(plan, worker_of_device, workers));
    const bool checksums = !random.OneIn(4);
    std::array<TaskReports, 2> reports;
    for (int32_t worker = 0; worker < 2; ++worker) {
      TaskSpec spec = memory->SpecOf(worker, {.operation = seed + i});
      spec.checksums = checksums;
      ASSERT_OK(workers.runner(worker).Start(std::move(spec), reports[worker]));
    }
    workers.gpus().RunUntil([&] { return reports[0].task && reports[1].task; });
    for (const TaskReports& of_worker : reports) {
      EXPECT_OK(of_worker.task->status);
      EXPECT_EQ(of_worker.devices.size(), of_worker.task->devices.size());
      for (const DeviceReport& device : of_worker.devices) {
        EXPECT_OK(device.status);
        EXPECT_OK(memory->CheckDestination(device.device));
      }
    }
    EXPECT_OK(memory->CheckUntouched());
  }
  workers.gpus().RunUntil([&] { return workers.bridge().bounce_bytes() == 0; });
  workers.gpus().Stop();
  EXPECT_EQ(workers.gpus().Violations(), "");
}

TEST(BridgedRandomTest, EveryElementArrives) { RunCases(RandomCase, 120, 1); }

TEST(BridgedRandomTest, QuantizedElementsArriveWithTheirScales) {
  RunCases(RandomQuantizedCase, 30, 200'000);
}

}  // namespace
}  // namespace crossmesh
