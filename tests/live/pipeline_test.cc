// Runs of pipelines by the real programs: rehearsals, and processes that are killed, stopped, or
// never answer in the middle of an iteration.

#include "common/testing/status_matchers.h"
#include "tests/live/embedding_process.h"
#include "tests/live/pipeline_fixture.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

TEST_F(PipelineTest, ARehearsalIsMeasured) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"node-0", "node-1", "node-2"}));
  const auto run = Run(RequestFor(ChainPipeline(cluster_->workers(), 0.001), 4));
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run->Result());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_DONE) << done.error();
  EXPECT_EQ(Complete(done), 4);
  EXPECT_GT(done.median_seconds(), 8 * 0.003);
  ASSERT_EQ(done.measurement().ranks_size(), 3);
  for (const auto& rank : done.measurement().ranks()) EXPECT_EQ(rank.ops().name_size(), 16);
  // Three edges, two ways, two sizes of microbatches.
  ASSERT_EQ(done.measurement().transfers_size(), 12);
  for (const auto& transfer : done.measurement().transfers()) {
    EXPECT_EQ(transfer.messages().name_size(), transfer.samples() == 2 ? 7 : 1);
    EXPECT_GT(transfer.transfer_seconds(), 0);
    EXPECT_GT(transfer.first_byte_seconds(), 0);
  }
}

TEST_F(PipelineTest, BlockingTransfersRunAsPlanned) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"node-0", "node-1", "node-2"}));
  v1::StartPipelineRequest request = RequestFor(ChainPipeline(cluster_->workers(), 0.001), 2);
  request.mutable_choice()->set_schedule("1f1b");
  request.mutable_choice()->set_transfer_model("blocking");
  const auto run = Run(request);
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run->Result());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_DONE) << done.error();
  EXPECT_EQ(Complete(done), 2);
}

TEST_F(PipelineTest, AKilledWorkerFailsTheIterationAndTheNextOneRuns) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"node-0", "node-1"}));
  const auto run = Run(RequestFor(ChainPipeline(cluster_->workers(), 0.05), 4));
  ASSERT_NO_FATAL_FAILURE(WaitForFirst(*run));
  cluster_->Kill("node-1");
  const v1::PipelineRun failed = WaitForFailure(*run);
  EXPECT_THAT(ErrorOf(failed), HasSubstr("node-1"));
  EXPECT_THAT(ErrorOf(failed), HasSubstr("rank 0: "));
  ASSERT_OK(cluster_->StartWorker("node-1"));
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run->Result());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_DONE) << done.error();
  EXPECT_EQ(done.failed_iterations(), 1);
  EXPECT_EQ(Complete(done), 3);
}

TEST_F(PipelineTest, AWorkerThatStandsStillFailsTheIterationAndTheNextOneRuns) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"node-0", "node-1"}));
  const auto run = Run(RequestFor(ChainPipeline(cluster_->workers(), 0.05), 4));
  ASSERT_NO_FATAL_FAILURE(WaitForFirst(*run));
  cluster_->Signal("node-1", SIGSTOP);
  const v1::PipelineRun failed = WaitForFailure(*run);
  EXPECT_THAT(ErrorOf(failed), HasSubstr("node-1"));
  cluster_->Signal("node-1", SIGCONT);
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run->Result());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_DONE) << done.error();
  EXPECT_EQ(done.failed_iterations(), 1);
}

TEST_F(PipelineTest, AWorkerThatStaysAwayFailsTheRun) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"node-0", "node-1"}));
  v1::StartPipelineRequest request = RequestFor(ChainPipeline(cluster_->workers(), 0.05), 100);
  request.mutable_rejoin_limit()->set_seconds(1);
  const auto run = Run(request);
  ASSERT_NO_FATAL_FAILURE(WaitForFirst(*run));
  cluster_->Kill("node-1");
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run->Result());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_THAT(done.error(), HasSubstr("node-1"));
}

TEST_F(PipelineTest, ARunIsStoppedInTheMiddle) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"node-0", "node-1"}));
  const auto run = Run(RequestFor(ChainPipeline(cluster_->workers(), 0.05), 1000));
  ASSERT_NO_FATAL_FAILURE(WaitForFirst(*run));
  ASSERT_OK_AND_ASSIGN(
      const v1::PipelineRun now,
      run->WaitFor([](const auto& found) { return !found.id().empty(); }, kBeginMax));
  EXPECT_OK(cluster_->client().StopPipelineRun(now.id(), /*now=*/true));
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run->Result());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_STOPPED);
}

TEST_F(PipelineTest, ADaemonComputesNothing) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"node-0", "node-1"}));
  v1::StartPipelineRequest request = RequestFor(ChainPipeline(cluster_->workers(), 0.001), 1);
  request.set_rehearsal(false);
  const auto run = Run(request);
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run->Result());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_THAT(done.error(), HasSubstr("expected a process that computes pipelines"));
}

TEST_F(PipelineTest, ProcessesThatEmbedWorkersComputeAndOneThatNeverAnswersIsNamed) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({}));
  EmbeddingProcess first("node-0", cluster_->controller_address());
  EmbeddingProcess second("node-1", cluster_->controller_address());
  ASSERT_OK(cluster_->WaitForWorker("node-0", v1::WORKER_STATE_READY));
  ASSERT_OK(cluster_->WaitForWorker("node-1", v1::WORKER_STATE_READY));
  v1::StartPipelineRequest request = RequestFor(ChainPipeline({"node-0", "node-1"}, 0.001), 3);
  request.set_rehearsal(false);
  request.mutable_iteration_deadline()->set_seconds(2);
  second.HangAt(0, "1F3");
  const auto run = Run(request);
  const v1::PipelineRun failed = WaitForFailure(*run);
  EXPECT_THAT(ErrorOf(failed), HasSubstr("computes 1F3"));
  second.Answer();
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run->Result());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_DONE) << done.error();
  EXPECT_EQ(done.failed_iterations(), 1);
  EXPECT_EQ(Complete(done), 2);
  EXPECT_EQ(first.complete(), 2);
}

}  // namespace
}  // namespace crossmesh
