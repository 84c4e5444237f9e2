#pragma once

#include "common/base/mutex.h"
#include "controller/dispatch/worker_gateway.h"
#include "crossmesh/v1/execution_service.grpc.pb.h"

#include <memory>
#include <string>

#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>

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

  // A worker has come to this address: connects to it now, with nothing remembered of failures to
  // reach one that was there before.
  void Connect(const std::string& worker_address);
  // Nobody is there any more. Calls in progress go on.
  void Forget(const std::string& worker_address);

  // Breaks all calls off, which leaves the workers' tasks as they are, and returns when every
  // listener has heard OnCallEnded. Repeatable. Calls end at once from now on. Blocks.
  void Stop();

 private:
  using Stub = v1::ExecutionService::Stub;
  class Call;
  class CallTable;

  absl::StatusOr<std::shared_ptr<Stub>> StubFor(const std::string& address);

  const bool insecure_;
  const std::unique_ptr<CallTable> calls_;  // in progress

  Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<Stub>> stubs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
