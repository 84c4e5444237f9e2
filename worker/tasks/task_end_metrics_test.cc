#include "worker/tasks/task_end_metrics.h"

#include "common/base/check.h"
#include "common/metrics/metric_names.h"
#include "common/metrics/testing/metric_value.h"
#include "common/plan/testing/chain_plan.h"
#include "common/plan/worker_part.h"

#include <memory>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// a.0 gives 16 bytes to b.0, which gives them on to b.1, and a.1 48 bytes the other way round.
std::shared_ptr<const LaidOutPart> MakePart() {
  const Plan plan = ChainPlan(TensorOf("[16]: x=2 on a.0-1 {[0:4]; [4:16]} -> x=2 on b.0-1 [-]"),
                              {"a.0 > b.0 > b.1", "a.1 > b.1 > b.0"});
  auto parts = CutParts(plan, {plan.tensors().devices()});
  CHECK_OK(parts);
  auto part = LaidOutPart::Create(std::make_shared<const WorkerPart>(parts->front()));
  CHECK_OK(part);
  return *std::move(part);
}

class TaskEndMetricsTest : public testing::Test {
 protected:
  TaskEndMetricsTest() {
    for (const DeviceRank device : part_->prepared->destinations()) {
      report_.devices.push_back({.device = device});
    }
  }

  void Record() { RecordTaskEnd(*part_, report_, TransportLink::kUcxRdma, metrics_); }
  double Value(const MetricName& name, absl::string_view label) const {
    return ValueOf(metrics_.metrics(), name, label);
  }

  const std::shared_ptr<const LaidOutPart> part_ = MakePart();
  TaskReport report_;
  WorkerMetrics metrics_;
};

TEST_F(TaskEndMetricsTest, EveryPhaseHasItsTime) {
  report_.seconds = {.bind = 1, .move = 2, .pack = 4, .unpack = 8, .checksum = 16};
  Record();
  EXPECT_EQ(Value(metric::kPhaseSeconds, "bind"), 1);
  EXPECT_EQ(Value(metric::kPhaseSeconds, "move"), 2);
  EXPECT_EQ(Value(metric::kPhaseSeconds, "pack"), 4);
  EXPECT_EQ(Value(metric::kPhaseSeconds, "unpack"), 8);
  EXPECT_EQ(Value(metric::kPhaseSeconds, "checksum"), 16);
}

TEST_F(TaskEndMetricsTest, ARelayCountsByItsPlaceInTheChain) {
  Record();
  EXPECT_EQ(Value(metric::kRelays, "root"), 2);
  EXPECT_EQ(Value(metric::kRelays, "forward"), 2);
  EXPECT_EQ(Value(metric::kRelays, "leaf"), 2);
  EXPECT_EQ(Value(metric::kRelays, "succeeded"), 6);
}

TEST_F(TaskEndMetricsTest, RelaysShareTheTimeByTheirBytes) {
  report_.seconds.move = 12;
  Record();
  // All 192 bytes, each of which thus took a sixteenth of a second.
  EXPECT_EQ(Value(metric::kRelaySeconds, "ucx"), 12);
  EXPECT_EQ(Value(metric::kRelayThroughput, "rdma"), 6 * 16);
}

TEST_F(TaskEndMetricsTest, RelaysOfADeviceThatFailedHaveFailed) {
  report_.devices[0].status = absl::DataLossError("leaf 3 differs");
  Record();
  // Roots go by the task, which has done its own part.
  EXPECT_EQ(Value(metric::kRelays, "failed"), 2);
  EXPECT_EQ(Value(metric::kRelays, "succeeded"), 4);
}

TEST_F(TaskEndMetricsTest, RootsFailWithTheTask) {
  report_.status = absl::DeadlineExceededError("deadline of 1m");
  Record();
  EXPECT_EQ(Value(metric::kRelays, "failed"), 2);
  EXPECT_EQ(Value(metric::kRelays, "succeeded"), 4);
}

TEST_F(TaskEndMetricsTest, WhatFailedBecauseItWasCancelledWasAborted) {
  report_.status = absl::CancelledError("no longer wanted");
  for (DeviceReport& device : report_.devices) device.status = report_.status;
  Record();
  EXPECT_EQ(Value(metric::kRelays, "aborted"), 6);
  EXPECT_EQ(Value(metric::kRelays, "failed"), 0);
}

}  // namespace
}  // namespace crossmesh
