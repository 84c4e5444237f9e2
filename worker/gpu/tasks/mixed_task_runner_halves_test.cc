// What one half of a task makes of the other, with stand-ins for both runners: halves end when a
// test says so.

#include "common/base/fake_clock.h"
#include "common/event_loop/event_loop.h"
#include "common/plan/slicing.h"
#include "common/plan/testing/proven_parts.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"
#include "worker/executor/prepared_part.h"
#include "worker/gpu/tasks/mixed_task_runner.h"
#include "worker/gpu/tasks/testing/bridged_workers.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Runs one task, which it does nothing for.
class HeldRunner final : public TaskRunner {
 public:
  absl::Status Start(TaskSpec spec, TaskObserver& observer) override {
    key_ = spec.key;
    observer_ = &observer;
    return absl::OkStatus();
  }
  void Cancel(const TaskKey& key, absl::Status why) override {
    EXPECT_EQ(key, key_);
    causes.push_back(std::move(why));
  }
  void Refuse(const TaskKey& /*key*/) override {}
  void RaiseEpoch(uint64_t /*epoch*/) override {}
  void PeerLost(const TaskKey& /*key*/, absl::string_view /*worker*/,
                absl::Status /*why*/) override {}
  std::optional<int64_t> MovedBytes(const TaskKey& /*key*/) const override { return std::nullopt; }

  // Of the task. On the loop.
  void End(const absl::Status& status) { observer_->OnTaskDone({.key = key_, .status = status}); }

  std::vector<absl::Status> causes;  // for which it was cancelled

 private:
  TaskKey key_;
  TaskObserver* observer_ = nullptr;
};

// Of a tensor that goes from a.0 to b.0, over GPUs, and to c.0, by host memory.
std::shared_ptr<const PreparedPart> PartOfBothMedia() {
  auto tensors = std::make_shared<const TensorTable>(
      TableOf({TensorOf("[8, 4]: x=1 on a.0 [-, -] -> r=2 on b.0,c.0 [-, -]")}));
  auto slicing = Slicing::Create(*tensors);
  CHECK_OK(slicing);
  Plan::Spec spec{.tensors = std::move(tensors),
                  .slicing = std::make_shared<const Slicing>(*std::move(slicing)),
                  .over_gpus = {1}};
  spec.relays = {
      {.slice_class = 0, .root = 0, .begin = 0, .end = 128, .first_hop = 0, .hop_count = 1},
      {.slice_class = 0, .root = 0, .begin = 0, .end = 128, .first_hop = 1, .hop_count = 1}};
  spec.hops = {{.from = 0, .to = 1}, {.from = 0, .to = 2}};
  const Plan plan = MakePlan(std::move(spec));
  auto parts = MakeParts(plan, {plan.tensors().devices()});
  auto prepared =
      PreparedPart::Create(std::make_shared<const WorkerPart>(std::move(parts.front())));
  CHECK_OK(prepared);
  return *std::move(prepared);
}

class MixedTaskRunnerHalvesTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(loop_, EventLoop::Create(clock_, {}));
    runner_ = std::make_unique<MixedTaskRunner>(*loop_, over_gpus_, by_host_);
    TaskSpec spec;
    spec.key = {.operation = 1, .epoch = 1};
    spec.part = PartOfBothMedia();
    spec.communicators = {{.devices = {0, 1}}};
    ASSERT_OK(runner_->Start(std::move(spec), reports_));
  }

  void End(HeldRunner& half, const absl::Status& status) {
    loop_->Post([&half, status] { half.End(status); });
    while (loop_->RunOnce(absl::ZeroDuration()) > 0) {
    }
  }

  FakeClock clock_;
  std::unique_ptr<EventLoop> loop_;
  HeldRunner over_gpus_;
  HeldRunner by_host_;
  std::unique_ptr<MixedTaskRunner> runner_;
  TaskReports reports_;
};

TEST_F(MixedTaskRunnerHalvesTest, AHalfOverGpusThatFailsCancelsTheHalfByHostMemory) {
  End(over_gpus_, absl::InternalError("a GPU broke"));
  EXPECT_THAT(by_host_.causes, ElementsAre(StatusIs(absl::StatusCode::kUnavailable,
                                                    "ended with the half over GPUs: a GPU broke")));
  EXPECT_FALSE(reports_.task.has_value());
  End(by_host_, absl::UnavailableError("ended with the other"));
  EXPECT_THAT(over_gpus_.causes, IsEmpty());
  ASSERT_TRUE(reports_.task.has_value());
  EXPECT_THAT(reports_.task->status, StatusIs(absl::StatusCode::kInternal, "a GPU broke"));
}

TEST_F(MixedTaskRunnerHalvesTest, AHalfByHostMemoryThatFailsCancelsTheHalfOverGpus) {
  End(by_host_, absl::DataLossError("bytes differ"));
  EXPECT_THAT(over_gpus_.causes,
              ElementsAre(StatusIs(absl::StatusCode::kUnavailable,
                                   "ended with the half by host memory: bytes differ")));
  EXPECT_FALSE(reports_.task.has_value());
  End(over_gpus_, absl::UnavailableError("ended with the other"));
  EXPECT_THAT(by_host_.causes, IsEmpty());
  ASSERT_TRUE(reports_.task.has_value());
  EXPECT_THAT(reports_.task->status, StatusIs(absl::StatusCode::kDataLoss, "bytes differ"));
}

TEST_F(MixedTaskRunnerHalvesTest, AHalfThatEndsWellLeavesTheOtherAlone) {
  End(by_host_, absl::OkStatus());
  EXPECT_THAT(over_gpus_.causes, IsEmpty());
  EXPECT_FALSE(reports_.task.has_value());
  End(over_gpus_, absl::OkStatus());
  EXPECT_THAT(by_host_.causes, IsEmpty());
  ASSERT_TRUE(reports_.task.has_value());
  EXPECT_OK(reports_.task->status);
}

}  // namespace
}  // namespace crossmesh
