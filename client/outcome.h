// What became of an operation or of a pipeline's run, and the names of states.

#pragma once

#include "crossmesh/v1/operation_service.pb.h"
#include "crossmesh/v1/pipeline_service.pb.h"
#include "crossmesh/v1/worker_service.pb.h"

#include <string>

#include <absl/status/status.h>

namespace crossmesh {

// Has it come to one of the states that it does not leave?
bool HasEnded(const v1::Operation& operation);
bool HasEnded(const v1::PipelineRun& run);

// OK for a committed operation, and for a run that is DONE, iterations failed or not; else its
// error, with the code that it has, naming it and its state. A run that was stopped is Cancelled.
absl::Status OutcomeOf(const v1::Operation& operation);
absl::Status OutcomeOf(const v1::PipelineRun& run);

// "COMMITTED", "RECEIVING", "READY", "WAITING".
std::string StateName(v1::OperationState state);
std::string StateName(v1::PipelineRunState state);
std::string StateName(v1::ReplicaState state);
std::string StateName(v1::WorkerState state);

}  // namespace crossmesh
