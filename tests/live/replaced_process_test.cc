// Processes that compute a pipeline, of which one is replaced by another that knows nothing.

#include "common/testing/status_matchers.h"
#include "tests/live/embedding_process.h"
#include "tests/live/pipeline_fixture.h"

#include <memory>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two processes, of which the second is replaced in iteration 1.
class ReplacedProcessTest : public PipelineTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(StartCluster({}));
    first_ = Start("node-0");
    second_ = Start("node-1");
    ASSERT_OK(cluster_->WaitForWorker("node-0", v1::WORKER_STATE_READY));
    ASSERT_OK(cluster_->WaitForWorker("node-1", v1::WORKER_STATE_READY));
  }

  std::unique_ptr<EmbeddingProcess> Start(const std::string& name) {
    return std::make_unique<EmbeddingProcess>(name, cluster_->controller_address());
  }

  absl::StatusOr<v1::PipelineRun> RunAndReplace() {
    v1::StartPipelineRequest request = RequestFor(ChainPipeline({"node-0", "node-1"}, 0.001), 3);
    request.set_rehearsal(false);
    second_->HangAt(1, "1F3");
    const auto run = Run(request);
    EXPECT_TRUE(second_->WaitUntilItHangs(kBeginMax));
    second_.reset();
    second_ = Start("node-1");
    return run->Result();
  }

  std::unique_ptr<EmbeddingProcess> first_, second_;
};

TEST_F(ReplacedProcessTest, AllAreToldBeforeTheNextIteration) {
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, RunAndReplace());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_DONE) << done.error();
  EXPECT_EQ(done.failed_iterations(), 1);
  EXPECT_THAT(first_->told(), ElementsAre("0", "1", "rank 1 lost after 0", "2"));
  EXPECT_THAT(second_->told(), ElementsAre("rank 1 lost after 0", "2"));
}

TEST_F(ReplacedProcessTest, OneThatDoesNotGoOnEndsTheRunWithItsReason) {
  first_->SetAnswer(absl::NotFoundError("there is no checkpoint"));
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, RunAndReplace());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_EQ(done.error(),
            "worker node-0: rank 0 does not go on after the loss of the state of rank 1: there is "
            "no checkpoint");
  EXPECT_THAT(done.lost_ranks(), ElementsAre(1));
}

// A program that does not know of the question must not train on with weights of two times.
TEST_F(ReplacedProcessTest, OneThatDoesNotAnswerEndsTheRun) {
  first_->SetAnswer(std::nullopt);
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, RunAndReplace());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_THAT(done.error(), HasSubstr("its process went on without an answer"));
  EXPECT_EQ(Complete(done), 1);
}

}  // namespace
}  // namespace crossmesh
