#pragma once

#include "controller/dispatch/grpc/open_calls.h"
#include "controller/dispatch/grpc/worker_stubs.h"
#include "controller/dispatch/worker_gateway.h"
#include "crossmesh/v1/execution_service.grpc.pb.h"

#include <memory>
#include <string>

namespace crossmesh {

// Reaches workers over gRPC: one Execute call per task, one channel per address. Thread-safe; never
// blocks.
class GrpcWorkerGateway final : public WorkerGateway {
 public:
  // `insecure` allows addresses that are not local.
  explicit GrpcWorkerGateway(bool insecure);
  // As Stop.
  ~GrpcWorkerGateway() override;

  // An address that no channel can be made to ends the call at once, with the reason.
  std::unique_ptr<TaskCall> Execute(const std::string& worker_address, const TaskStart& start,
                                    TaskListener& listener) override;

  // As of WorkerStubs.
  void Connect(const std::string& worker_address) { stubs_.Connect(worker_address); }
  void Forget(const std::string& worker_address) { stubs_.Forget(worker_address); }

  // Breaks all calls off, which leaves the workers' tasks as they are, and returns when every
  // listener has heard OnCallEnded. Repeatable. Calls end at once from now on. Blocks.
  void Stop();

 private:
  class Call;

  WorkerStubs<v1::ExecutionService> stubs_;
  const std::unique_ptr<OpenCalls<Call>> calls_;
};

}  // namespace crossmesh
