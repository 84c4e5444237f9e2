#pragma once

#include "common/event_loop/event_loop.h"
#include "crossmesh/v1/execution_service.grpc.pb.h"
#include "worker/tasks/task_table.h"

#include <grpcpp/support/server_callback.h>

namespace crossmesh {

// Serves Execute: brings each call's messages to the control loop, in order. Thread-safe.
class ExecutionService final : public v1::ExecutionService::CallbackService {
 public:
  // Both outlive the server; `table` is confined to `control`.
  ExecutionService(EventLoop& control, TaskTable& table) : control_(control), table_(table) {}

  grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse>* Execute(
      grpc::CallbackServerContext* context) override;

 private:
  EventLoop& control_;
  TaskTable& table_;
};

}  // namespace crossmesh
