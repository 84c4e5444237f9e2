#pragma once

#include "crossmesh/v1/communicator_service.grpc.pb.h"

#include <memory>
#include <set>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <grpcpp/support/server_callback.h>

namespace crossmesh {

class CommunicatorProxy;
class EventLoop;
class GpuDevices;

// Serves controllers' orders for communicators of this worker's GPUs. Thread-safe.
class CommunicatorService final : public v1::CommunicatorService::CallbackService {
 public:
  // `gpus` lives on `loop`; both outlive the server.
  CommunicatorService(EventLoop& loop, GpuDevices& gpus);
  ~CommunicatorService() override;

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
  grpc::ServerUnaryReactor* StopCommunicator(grpc::CallbackServerContext* context,
                                             const v1::StopCommunicatorRequest* request,
                                             v1::StopCommunicatorResponse* response) override;

 private:
  using Reactor = grpc::ServerUnaryReactor;

  // Runs `order` on the loop; what it refuses ends the call.
  Reactor* OnLoop(grpc::CallbackServerContext* context,
                  absl::AnyInvocable<absl::Status(Reactor*)> order);
  // Whether the call is still open: if so, its response may be filled, and Finish called.
  bool is_open(Reactor* reactor) const { return open_.contains(reactor); }
  void Finish(Reactor* reactor, const absl::Status& status);

  EventLoop& loop_;

  // Confined to the loop.
  const std::unique_ptr<CommunicatorProxy> proxy_;
  bool stopped_ = false;
  std::set<Reactor*> open_;
};

}  // namespace crossmesh
