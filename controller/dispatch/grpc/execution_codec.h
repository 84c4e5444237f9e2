#pragma once

#include "controller/dispatch/worker_gateway.h"
#include "crossmesh/v1/execution_service.pb.h"

namespace crossmesh {

v1::ExecuteRequest StartRequest(const TaskStart& start);
TaskOutcome OutcomeOf(const v1::ExecuteResponse::Report& report);

}  // namespace crossmesh
