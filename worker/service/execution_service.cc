#include "worker/service/execution_service.h"

#include "worker/service/control_stream.h"
#include "worker/tasks/execute_call.h"

namespace crossmesh {

grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse>* ExecutionService::Execute(
    grpc::CallbackServerContext* /*context*/) {
  return ControlStream<v1::ExecuteRequest, v1::ExecuteResponse, ExecuteCall>::Open(control_,
                                                                                   table_);
}

}  // namespace crossmesh
