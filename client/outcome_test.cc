#include "client/outcome.h"

#include "client/testing/answers.h"
#include "common/testing/status_matchers.h"
#include "crossmesh/v1/operation_service.pb.h"
#include "crossmesh/v1/pipeline_service.pb.h"

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

TEST(OutcomeTest, KeepsTheOperationsCode) {
  v1::Operation operation = OperationIn(v1::OPERATION_STATE_PARTIAL);
  operation.set_error("worker node-1 is lost");
  operation.set_error_code(14);
  EXPECT_THAT(OutcomeOf(operation),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("operation op-7 ended PARTIAL: worker node-1 is lost")));
  EXPECT_OK(OutcomeOf(OperationIn(v1::OPERATION_STATE_COMMITTED)));
}

TEST(OutcomeTest, OfARunIsItsStateWhateverItsIterationsCameTo) {
  v1::PipelineRun run = RunIn(v1::PIPELINE_RUN_STATE_DONE);
  run.set_failed_iterations(2);
  EXPECT_OK(OutcomeOf(run));
  run.set_state(v1::PIPELINE_RUN_STATE_FAILED);
  run.set_error("worker node-1 is lost");
  run.set_error_code(14);
  EXPECT_THAT(OutcomeOf(run),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("pipeline run pr-7 ended FAILED: worker node-1 is lost")));
  EXPECT_THAT(OutcomeOf(RunIn(v1::PIPELINE_RUN_STATE_STOPPED)),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("pr-7 ended STOPPED")));
}

}  // namespace
}  // namespace crossmesh
