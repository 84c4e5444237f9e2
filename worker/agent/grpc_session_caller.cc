#include "worker/agent/grpc_session_caller.h"

#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"
#include "crossmesh/v1/worker_service.grpc.pb.h"
#include "worker/agent/session_agent.h"

#include <utility>

namespace crossmesh {
namespace {

// Brings what it hears to the loop.
class GrpcSessionCall final
    : public ClientBidiStream<v1::WorkerSessionRequest, v1::WorkerSessionResponse>,
      public SessionCall {
 public:
  using Stream = ClientBidiStream<v1::WorkerSessionRequest, v1::WorkerSessionResponse>;

  GrpcSessionCall(EventLoop& loop, const std::shared_ptr<grpc::Channel>& channel,
                  SessionCaller::Listener listener)
      : loop_(loop),
        stub_(v1::WorkerService::NewStub(channel)),
        listener_(std::make_shared<const SessionCaller::Listener>(std::move(listener))) {}

  static void Open(const std::shared_ptr<GrpcSessionCall>& call) {
    Start(call, [&](grpc::ClientContext* context, Reactor* reactor) {
      call->stub_->async()->WorkerSession(context, reactor);
    });
  }

  void Send(v1::WorkerSessionRequest request) override { Stream::Send(std::move(request)); }
  void CloseWrites() override { Stream::CloseWrites(); }
  void Cancel() override { Stream::Cancel(); }

 private:
  void OnMessage(v1::WorkerSessionResponse response) override {
    loop_.Post(
        [listener = listener_, response = std::move(response)] { listener->on_message(response); });
  }
  void OnEnd(const absl::Status& status) override {
    loop_.Post([listener = listener_, status] { listener->on_end(status); });
  }

  EventLoop& loop_;
  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  const std::shared_ptr<const SessionCaller::Listener> listener_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<SessionCall>> GrpcSessionCaller::Open(const std::string& address,
                                                                     Listener listener) {
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel, ChannelTo(address));
  auto call = std::make_shared<GrpcSessionCall>(loop_, channel, std::move(listener));
  GrpcSessionCall::Open(call);
  return call;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> GrpcSessionCaller::ChannelTo(
    const std::string& address) {
  std::shared_ptr<grpc::Channel>& channel = channels_[address];
  if (channel == nullptr) {
    ASSIGN_OR_RETURN(channel,
                     BuildRpcChannel({.address = address,
                                      .insecure = insecure_,
                                      .reconnect_pause_max = SessionAgent::kReconnectPauseMax,
                                      .session = true}));
  }
  return channel;
}

}  // namespace crossmesh
