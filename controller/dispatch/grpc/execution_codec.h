#pragma once

#include "controller/dispatch/worker_gateway.h"
#include "crossmesh/v1/execution_service.pb.h"

#include <cstdint>
#include <string>

#include <absl/status/status.h>

namespace crossmesh {

v1::ExecuteRequest StartRequest(const TaskStart& start);
TaskOutcome OutcomeOf(const v1::ExecuteResponse::Report& report);
// A code that is none of gRPC's is Unknown.
absl::Status StatusFromCode(int32_t code, const std::string& message);

}  // namespace crossmesh
