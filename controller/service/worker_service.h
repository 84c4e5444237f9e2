#pragma once

#include "crossmesh/v1/operation_service.pb.h"
#include "crossmesh/v1/worker_service.grpc.pb.h"

#include <cstdint>
#include <string>
#include <vector>

namespace crossmesh {

template <typename Subject>
class JobRegistry;
class SessionTable;
class WorkerRegistry;

// Workers, for people and tools, and the workers' own sessions. Thread-safe.
class WorkerService final : public v1::WorkerService::CallbackService {
 public:
  WorkerService(WorkerRegistry& registry, SessionTable& sessions,
                const JobRegistry<v1::Operation>& operations)
      : registry_(registry), sessions_(sessions), operations_(operations) {}

  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* request,
                                        v1::ListWorkersResponse* response) override;
  grpc::ServerUnaryReactor* DrainWorker(grpc::CallbackServerContext* context,
                                        const v1::DrainWorkerRequest* request,
                                        v1::DrainWorkerResponse* response) override;
  grpc::ServerUnaryReactor* UndrainWorker(grpc::CallbackServerContext* context,
                                          const v1::UndrainWorkerRequest* request,
                                          v1::UndrainWorkerResponse* response) override;
  grpc::ServerUnaryReactor* EvictWorker(grpc::CallbackServerContext* context,
                                        const v1::EvictWorkerRequest* request,
                                        v1::EvictWorkerResponse* response) override;
  grpc::ServerUnaryReactor* ForgetWorker(grpc::CallbackServerContext* context,
                                         const v1::ForgetWorkerRequest* request,
                                         v1::ForgetWorkerResponse* response) override;
  grpc::ServerBidiReactor<v1::WorkerSessionRequest, v1::WorkerSessionResponse>* WorkerSession(
      grpc::CallbackServerContext* context) override;

 private:
  // Of these tasks' operations, as a heartbeat told them, some may have ended since.
  int32_t CountRunning(const std::vector<std::string>& operations) const;

  WorkerRegistry& registry_;
  SessionTable& sessions_;
  const JobRegistry<v1::Operation>& operations_;
};

}  // namespace crossmesh
