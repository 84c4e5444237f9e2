#pragma once

#include "common/rpc/open_calls.h"
#include "controller/dispatch/grpc/worker_channels.h"
#include "controller/dispatch/worker_gateway.h"

#include <memory>

namespace crossmesh {

// Reaches workers over gRPC, by calls of one kind. Thread-safe; never blocks, but for Stop.
template <typename Request, typename Response>
class GrpcWorkerGateway final : public WorkerGateway<Request, Response> {
 public:
  // `channels` must outlive it.
  explicit GrpcWorkerGateway(WorkerChannels& channels) : channels_(channels) {}
  // As Stop.
  ~GrpcWorkerGateway() override { Stop(); }

  // An address that no channel can be made to ends the call at once, with the reason.
  std::unique_ptr<WorkerCall<Request>> Open(WorkerCallStart<Request> start,
                                            WorkerCallListener<Response> listener) override;

  // Breaks all calls off, and returns when every listener has heard the end. Repeatable. Calls end
  // at once from now on. Blocks.
  void Stop() { open_.Stop(); }

 private:
  class Call;

  WorkerChannels& channels_;
  OpenCalls open_;
};

using GrpcTaskGateway = GrpcWorkerGateway<v1::ExecuteRequest, v1::ExecuteResponse>;
using GrpcProgramGateway = GrpcWorkerGateway<v1::RunProgramRequest, v1::RunProgramResponse>;

extern template class GrpcWorkerGateway<v1::ExecuteRequest, v1::ExecuteResponse>;
extern template class GrpcWorkerGateway<v1::RunProgramRequest, v1::RunProgramResponse>;

}  // namespace crossmesh
