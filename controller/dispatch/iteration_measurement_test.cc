#include "controller/dispatch/iteration_measurement.h"

#include "common/base/status_macros.h"
#include "common/testing/status_matchers.h"
#include "controller/dispatch/testing/sample_layers.h"
#include "controller/dispatch/testing/sample_pipeline.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kSecond = 1'000'000'000;

absl::StatusOr<std::shared_ptr<const PlannedPipeline>> PlanWithAPair() {
  ASSIGN_OR_RETURN(PipelineDescription description, FromProto(SamplePipeline({4, 4}), {}));
  v1::PipelineChoice choice;
  choice.set_schedule_file(R"({"version": 1, "microbatches": 2, "stage_ranks": [0, 1],
                               "edges": [{"from": 0, "to": 1}],
                               "ranks": ["0F0 0F1& 0B0 0B1", "1F0 1B0 1F1 1B1"]})");
  return PlanPipeline(std::move(description), choice);
}

// So the pair's time is nowhere taken for that of one of its ops.
TEST(IterationMeasurementTest, TwoFusedOpsAreToldAsOne) {
  ASSERT_OK_AND_ASSIGN(const auto planned, PlanWithAPair());
  std::vector<WorkerReport> reports = {{.transfers = {0}}, {.transfers = {0}}};
  for (int64_t worker = 0; worker < 2; ++worker) {  // of rank 0, the one a second after the other
    auto& ops = *reports[worker].report.add_ops();
    for (const int64_t begin : {10, 20, 20, 30}) {
      ops.add_begin_ns((begin + worker) * kSecond);
      ops.add_end_ns((begin + worker + 5) * kSecond);
    }
    auto& forward = *reports[worker].report.add_transfers();
    for (const int64_t begin : {15, 25}) {
      forward.add_produced_ns((begin + worker) * kSecond);
      forward.add_arrived_ns((begin + worker + 2) * kSecond);
    }
  }
  const v1::PipelineMeasurement measured = MeasureIteration(*planned, reports);
  const v1::PipelineTimes& ops = measured.ranks(0).ops();
  EXPECT_THAT(ops.name(), ElementsAre("0F0", "0F1& 0B0", "0B1"));
  EXPECT_THAT(ops.begin(), ElementsAre(0, 10, 20));
  EXPECT_THAT(ops.end(), ElementsAre(6, 16, 26));
  const v1::PipelineTimes& messages = measured.transfers(0).messages();
  EXPECT_THAT(messages.name(), ElementsAre("0F0", "0F1"));
  EXPECT_THAT(messages.begin(), ElementsAre(6, 16));
  EXPECT_THAT(messages.end(), ElementsAre(8, 18));
}

// Rank 0 is of two workers, the second of which has only one of the transfers.
TEST(IterationMeasurementTest, OpsAndTransfersOfLayersAreToldByName) {
  const auto planned = PlanSampleLayers();
  std::vector<WorkerReport> reports = {{.transfers = {0, 2}}, {.transfers = {2}}};
  for (int64_t worker = 0; worker < 2; ++worker) {
    auto& ops = *reports[worker].report.add_ops();
    for (const int64_t begin : {10, 20, 30}) {
      ops.add_begin_ns((begin + worker) * kSecond);
      ops.add_end_ns((begin + worker + 5) * kSecond);
    }
    auto& last = *reports[worker].report.add_transfers();
    last.set_transfer(worker == 0 ? 1 : 0);
    last.add_produced_ns((25 + worker) * kSecond);
    last.add_first_byte_ns(kSecond);
    last.add_arrived_ns((28 + 2 * worker) * kSecond);
    // One that the program has not, as no honest worker says.
    last.add_arrived_ns(40 * kSecond);
  }
  const v1::PipelineMeasurement measured = MeasureIteration(*planned, reports);
  ASSERT_EQ(measured.ranks_size(), 2);
  EXPECT_THAT(measured.ranks(0).ops().name(), ElementsAre("first", "second", "end"));
  EXPECT_THAT(measured.ranks(0).ops().begin(), ElementsAre(0, 10, 20));
  EXPECT_THAT(measured.ranks(0).ops().end(), ElementsAre(6, 16, 26));
  EXPECT_EQ(measured.ranks(1).ops().name_size(), 0);
  ASSERT_EQ(measured.transfers_size(), 3);
  EXPECT_EQ(measured.transfers(0).transfer_seconds(), 0);
  const v1::PipelineMeasurement::Transfer& sum = measured.transfers(2);
  EXPECT_EQ(sum.name(), "sum1");
  EXPECT_THAT(sum.messages().name(), ElementsAre("second"));
  EXPECT_THAT(sum.messages().begin(), ElementsAre(16));
  EXPECT_THAT(sum.messages().end(), ElementsAre(20));
  EXPECT_EQ(sum.transfer_seconds(), 4);
  EXPECT_EQ(sum.first_byte_seconds(), 1);
}

}  // namespace
}  // namespace crossmesh
