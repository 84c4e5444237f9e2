#pragma once

#include "common/communicators/communicator_key.h"
#include "crossmesh/v1/communicator_service.grpc.pb.h"
#include "crossmesh/v1/gpu_process.pb.h"

#include <cstdint>
#include <set>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <grpcpp/support/server_callback.h>

namespace crossmesh {

class EventLoop;
class GpuDevices;

// Hands what controllers ask of communicators to the processes of this worker's GPUs as it is, and
// their answers back. Before the first request of a later epoch goes on, all communicators of
// earlier epochs are stopped. Thread-safe.
class CommunicatorService final : public v1::CommunicatorService::CallbackService {
 public:
  // `gpus` lives on `loop`; both outlive the server.
  CommunicatorService(EventLoop& loop, GpuDevices& gpus) : loop_(loop), gpus_(gpus) {}

  // Ends open calls, whose answers may never come, and refuses more: Unavailable. Before the
  // server's shutdown, while the loop runs. Repeatable.
  void Stop();

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
  using Reactor = grpc::ServerUnaryReactor;
  // Which process a request is for, and for a controller of which epoch.
  struct Address {
    RankName rank;
    uint64_t epoch = 0;
  };
  // Takes the answer of the process, while the call's response is there.
  using Take = absl::AnyInvocable<void(v1::GpuNotice::Answer& answer)>;

  static absl::StatusOr<Address> AddressOf(const v1::CommunicatorKey::Rank& rank, uint64_t epoch);
  // `rank`: by index of the key's.
  static absl::StatusOr<Address> AddressOf(const v1::CommunicatorKey& key, int32_t rank);

  Reactor* PassOn(grpc::CallbackServerContext* context, absl::StatusOr<Address> to,
                  v1::GpuRequest request, Take take);
  void Finish(Reactor* reactor, const absl::Status& status);

  EventLoop& loop_;

  // Confined to the loop.
  GpuDevices& gpus_;
  bool stopped_ = false;
  std::set<Reactor*> open_;
};

}  // namespace crossmesh
