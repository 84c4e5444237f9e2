#pragma once

#include "crossmesh/v1/operation_service.grpc.pb.h"

#include <cstddef>

#include <absl/status/status.h>

namespace crossmesh {

class RunningOperation;
template <typename Subject>
class JobRegistry;
template <typename Running>
class RunningTable;

// Reads, watches and cancels operations. Thread-safe.
class OperationService final : public v1::OperationService::CallbackService {
 public:
  static constexpr size_t kReasonBytesMax = 256;

  OperationService(JobRegistry<v1::Operation>& registry, RunningTable<RunningOperation>& running)
      : registry_(registry), running_(running) {}

  grpc::ServerUnaryReactor* GetOperation(grpc::CallbackServerContext* context,
                                         const v1::GetOperationRequest* request,
                                         v1::GetOperationResponse* response) override;
  grpc::ServerUnaryReactor* ListOperations(grpc::CallbackServerContext* context,
                                           const v1::ListOperationsRequest* request,
                                           v1::ListOperationsResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchOperationResponse>* WatchOperation(
      grpc::CallbackServerContext* context, const v1::WatchOperationRequest* request) override;
  grpc::ServerUnaryReactor* CancelOperation(grpc::CallbackServerContext* context,
                                            const v1::CancelOperationRequest* request,
                                            v1::CancelOperationResponse* response) override;

 private:
  absl::Status Cancel(const v1::CancelOperationRequest& request);

  JobRegistry<v1::Operation>& registry_;
  RunningTable<RunningOperation>& running_;
};

}  // namespace crossmesh
