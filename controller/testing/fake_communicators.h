#pragma once

#include "common/base/mutex.h"
#include "common/communicators/communicator_key.h"
#include "crossmesh/v1/communicator_service.grpc.pb.h"

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// The communicators of a worker with one GPU, or none. Thread-safe.
class FakeCommunicators final : public v1::CommunicatorService::CallbackService {
 public:
  explicit FakeCommunicators(std::optional<RankName> process) : process_(std::move(process)) {}

  // The process that drives the GPU.
  std::optional<RankName> process() const;
  // Another one takes its place; communicators are gone.
  void ReplaceProcess();
  // What orders to make one are answered with from now on.
  void SetCreation(absl::Status status);
  // What measurements of the GPU are answered with from now on.
  void SetFigures(absl::StatusOr<v1::MeasureGpuResponse> figures);
  std::set<CommunicatorKey> keys() const;
  // Orders to make one, since the start.
  int creations() const;

  grpc::ServerUnaryReactor* GetPreflight(grpc::CallbackServerContext* context,
                                         const v1::GetPreflightRequest* request,
                                         v1::GetPreflightResponse* response) override;
  grpc::ServerUnaryReactor* MintCommunicatorId(grpc::CallbackServerContext* context,
                                               const v1::MintCommunicatorIdRequest* request,
                                               v1::MintCommunicatorIdResponse* response) override;
  grpc::ServerUnaryReactor* CreateCommunicator(grpc::CallbackServerContext* context,
                                               const v1::CreateCommunicatorRequest* request,
                                               v1::CreateCommunicatorResponse* response) override;
  grpc::ServerUnaryReactor* DestroyCommunicator(grpc::CallbackServerContext* context,
                                                const v1::DestroyCommunicatorRequest* request,
                                                v1::DestroyCommunicatorResponse* response) override;
  grpc::ServerUnaryReactor* MeasureGpu(grpc::CallbackServerContext* context,
                                       const v1::MeasureGpuRequest* request,
                                       v1::MeasureGpuResponse* response) override;
  grpc::ServerUnaryReactor* StopCommunicator(grpc::CallbackServerContext* context,
                                             const v1::StopCommunicatorRequest* request,
                                             v1::StopCommunicatorResponse* response) override;

 private:
  // A later epoch begins; communicators of earlier ones are gone.
  absl::Status Admit(const v1::CommunicatorKey::Rank& rank, uint64_t epoch)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Admit(const v1::CommunicatorKey& key, int rank)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Remove(const v1::CommunicatorKey& key, int rank);

  mutable Mutex mutex_;
  std::optional<RankName> process_ ABSL_GUARDED_BY(mutex_);
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status creation_ ABSL_GUARDED_BY(mutex_);
  absl::StatusOr<v1::MeasureGpuResponse> figures_ ABSL_GUARDED_BY(mutex_) =
      absl::UnimplementedError("no figures");
  int creations_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<CommunicatorKey> keys_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
