#include "client/outcome.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

namespace crossmesh {

bool HasEnded(const v1::Operation& operation) {
  switch (operation.state()) {
    case v1::OPERATION_STATE_COMMITTED:
    case v1::OPERATION_STATE_PARTIAL:
    case v1::OPERATION_STATE_FAILED:
    case v1::OPERATION_STATE_CANCELLED:
      return true;
    default:
      return false;
  }
}

bool HasEnded(const v1::PipelineRun& run) {
  switch (run.state()) {
    case v1::PIPELINE_RUN_STATE_DONE:
    case v1::PIPELINE_RUN_STATE_FAILED:
    case v1::PIPELINE_RUN_STATE_STOPPED:
      return true;
    default:
      return false;
  }
}

absl::Status OutcomeOf(const v1::Operation& operation) {
  if (operation.state() == v1::OPERATION_STATE_COMMITTED) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(operation.error_code());
  return absl::Status(code == absl::StatusCode::kOk ? absl::StatusCode::kUnknown : code,
                      absl::StrCat("operation ", operation.id(), " ended ",
                                   StateName(operation.state()), ": ", operation.error()));
}

absl::Status OutcomeOf(const v1::PipelineRun& run) {
  if (run.state() == v1::PIPELINE_RUN_STATE_DONE) return absl::OkStatus();
  auto code = static_cast<absl::StatusCode>(run.error_code());
  if (code == absl::StatusCode::kOk) {
    code = run.state() == v1::PIPELINE_RUN_STATE_STOPPED ? absl::StatusCode::kCancelled
                                                         : absl::StatusCode::kUnknown;
  }
  return absl::Status(code,
                      absl::StrCat("pipeline run ", run.id(), " ended ", StateName(run.state()),
                                   run.error().empty() ? "" : absl::StrCat(": ", run.error())));
}

std::string StateName(v1::OperationState state) {
  return std::string(absl::StripPrefix(v1::OperationState_Name(state), "OPERATION_STATE_"));
}

std::string StateName(v1::PipelineRunState state) {
  return std::string(absl::StripPrefix(v1::PipelineRunState_Name(state), "PIPELINE_RUN_STATE_"));
}

std::string StateName(v1::ReplicaState state) {
  return std::string(absl::StripPrefix(v1::ReplicaState_Name(state), "REPLICA_STATE_"));
}

std::string StateName(v1::WorkerState state) {
  return std::string(absl::StripPrefix(v1::WorkerState_Name(state), "WORKER_STATE_"));
}

}  // namespace crossmesh
