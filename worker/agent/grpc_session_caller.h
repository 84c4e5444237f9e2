#pragma once

#include "common/event_loop/event_loop.h"
#include "worker/agent/session_call.h"

#include <map>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <grpcpp/channel.h>

namespace crossmesh {

// Sessions as calls of gRPC. Confined to the loop, which outlives it.
class GrpcSessionCaller final : public SessionCaller {
 public:
  // Without `insecure` only local addresses may be spoken to, as BuildRpcChannel says.
  GrpcSessionCaller(EventLoop& loop, bool insecure) : loop_(loop), insecure_(insecure) {}

  absl::Status Check(const std::string& address) override { return ChannelTo(address).status(); }
  absl::StatusOr<std::shared_ptr<SessionCall>> Open(const std::string& address,
                                                    Listener listener) override;

 private:
  absl::StatusOr<std::shared_ptr<grpc::Channel>> ChannelTo(const std::string& address);

  EventLoop& loop_;
  const bool insecure_;
  std::map<std::string, std::shared_ptr<grpc::Channel>> channels_;  // to controllers, by address
};

}  // namespace crossmesh
