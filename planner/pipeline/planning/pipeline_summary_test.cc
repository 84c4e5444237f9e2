// What a planned pipeline tells clients of itself: PlannedPipeline::Summary.

#include "common/testing/status_matchers.h"
#include "planner/pipeline/planning/planned_pipeline.h"
#include "planner/pipeline/planning/testing/example_pipeline.h"
#include "planner/pipeline/planning/testing/planned_pipelines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

TEST(PipelineSummaryTest, SaysItAll) {
  ASSERT_OK_AND_ASSIGN(const PlannedPointer planned, PlanOf(ExamplePipeline(), ChoiceOf("auto")));
  const v1::PipelinePlan summary = planned->Summary();
  EXPECT_EQ(summary.id(), planned->id.ToString());
  EXPECT_EQ(summary.pipeline(), "u-net");
  EXPECT_THAT(summary.schedule(), testing::StartsWith("auto: "));
  ASSERT_EQ(summary.rank_ops_size(), 4);
  EXPECT_THAT(summary.rank_ops(3), testing::StartsWith("3F0 "));
  EXPECT_EQ(summary.predicted_seconds(), planned->run.seconds);
  EXPECT_EQ(summary.span_seconds(), planned->run.span_seconds);
  EXPECT_NEAR(summary.bubble_ratio(), BubbleRatio(*planned->ops, planned->run), 1e-12);
  EXPECT_EQ(summary.bound_seconds(), planned->bound.seconds());
  EXPECT_FALSE(summary.bound_kind().empty());
  EXPECT_FALSE(summary.bound_place().empty());
  ASSERT_EQ(summary.transfers_size(), 8);
  EXPECT_TRUE(summary.transfers(1).backward());
  EXPECT_EQ(summary.transfers(6).edge(), 3);
  EXPECT_EQ(summary.transfers(0).bytes(), 8 << 21);
  EXPECT_GT(summary.transfers(0).bound_seconds(), 0);
  EXPECT_GE(summary.transfers(0).seconds(), summary.transfers(0).bound_seconds());
  EXPECT_EQ(summary.transfers(0).plan_id(), planned->transfers[0].plan->id().ToString());
  EXPECT_EQ(summary.transfers(0).buffers(), planned->transfers[0].buffers);
  ASSERT_EQ(summary.ranks_size(), 4);
  EXPECT_EQ(summary.ranks(0).static_bytes(), 1'600'000'000);
  EXPECT_NEAR(summary.ranks(0).busy_seconds(), 16 * 0.120, 1e-9);
  EXPECT_GT(summary.ranks(0).buffer_bytes(), 0);
  EXPECT_GT(summary.ranks(0).peak_bytes(), 1'600'000'000);
  EXPECT_FALSE(summary.ranks(0).peak_op().empty());
  ASSERT_GT(summary.candidates_size(), 5);
  EXPECT_TRUE(summary.candidates(0).pareto());
  EXPECT_EQ(summary.candidates(0).seconds(), summary.predicted_seconds());
  EXPECT_NEAR(summary.candidates(0).bubble_ratio(), summary.bubble_ratio(), 1e-9);
  // Node b gets 16 MiB from either side for each microbatch.
  EXPECT_EQ(summary.busiest_port_bytes(), 16 * 32 * (1 << 20));
  EXPECT_EQ(summary.busiest_port(), "host node-b in");
  EXPECT_EQ(summary.transfer_model(), "ports");
  EXPECT_EQ(summary.proven_ops(), 16 * 4 * 2);
  EXPECT_EQ(summary.proven_transfers(), 16 * 8);
  EXPECT_EQ(summary.warnings_size(), 0);
}

TEST(PipelineSummaryTest, SaysWhenRatesAreAssumed) {
  ASSERT_OK_AND_ASSIGN(const PlannedPointer planned, PlanOf(Chain(2, 4), ChoiceOf("1f1b")));
  EXPECT_THAT(planned->Summary().warnings(),
              testing::ElementsAre(HasSubstr("one NIC of 12.5 GB/s")));
}

}  // namespace
}  // namespace crossmesh
