#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <grpcpp/grpcpp.h>

namespace crossmesh {

struct RpcChannelOptions {
  std::string address;    // a form of RpcAddress, with a port
  bool insecure = false;  // allows an address that is not local
  // Longest pause before gRPC connects again, after 0.1 s the first time; 3 s for workers, 10 s for
  // tools. gRPC varies pauses by a fifth only: code that opens a stream again adds Backoff's own.
  absl::Duration reconnect_pause_max = absl::Seconds(10);
  // For a channel on which a stream is always open: pings it while it is, so that a silent peer is
  // noticed, over a connection of its own, so that bulk data on other channels cannot delay it.
  bool session = false;
  absl::Duration keepalive_interval = absl::Seconds(5);
  absl::Duration keepalive_timeout = absl::Seconds(3);
};

// The one way to make a channel. It connects when it is first used. InvalidArgument: the address is
// malformed, has the port 0, or is not local without `insecure`.
absl::StatusOr<std::shared_ptr<grpc::Channel>> BuildRpcChannel(const RpcChannelOptions& options);

// Waits until the channel is connected, or cannot be. False: after `timeout` it is not known, as of
// a process that is stopped, whose socket accepts.
bool AwaitConnection(grpc::Channel& channel, absl::Duration timeout);

}  // namespace crossmesh
