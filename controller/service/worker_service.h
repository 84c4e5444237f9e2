#pragma once

#include "crossmesh/v1/worker_service.grpc.pb.h"

namespace crossmesh {

class SessionTable;
class WorkerRegistry;

// Workers, for people and tools, and the workers' own sessions. Thread-safe.
class WorkerService final : public v1::WorkerService::CallbackService {
 public:
  WorkerService(WorkerRegistry& registry, SessionTable& sessions)
      : registry_(registry), sessions_(sessions) {}

  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override;
  grpc::ServerUnaryReactor* DrainWorker(grpc::CallbackServerContext* context,
                                        const v1::DrainWorkerRequest* request,
                                        v1::DrainWorkerResponse* response) override;
  grpc::ServerBidiReactor<v1::WorkerSessionRequest, v1::WorkerSessionResponse>* WorkerSession(
      grpc::CallbackServerContext* context) override;

 private:
  WorkerRegistry& registry_;
  SessionTable& sessions_;
};

}  // namespace crossmesh
