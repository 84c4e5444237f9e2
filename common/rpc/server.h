#pragma once

#include "common/base/mutex.h"
#include "common/metrics/rpc_metrics.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>
#include <grpcpp/grpcpp.h>

namespace crossmesh {

// The one way to listen. A server that runs: its services, grpc.health.v1 and reflection.
//
// What is set, and why, stands in server.cc: one server per port, no compression, bounded messages,
// metadata and streams, keepalive while calls are open, connections that end with age. It accepts
// connections itself, as ConnectionAcceptor says. Thread-safe.
class RpcServer {
 public:
  struct Options {
    // Forms of RpcAddress, at least one. Unix sockets get the mode 0600.
    std::vector<std::string> addresses;
    // Allows addresses that are not local, which warns in the log.
    bool insecure = false;
    // Called by gRPC's threads; they outlive the server. Callback services only: a synchronous one
    // would block them.
    std::vector<grpc::Service*> services;
    // Serves every call that none of them does; null: Unimplemented.
    grpc::CallbackGenericService* other_calls = nullptr;
    // Asked before a call of theirs ends; an error is said instead of what the call would say.
    std::function<absl::Status()> may_answer;
    // Outlives the server. Null: calls are logged but not counted.
    RpcMetrics* metrics = nullptr;
    // Largest request. gRPC has one limit per server, not per method: a server with bulk methods
    // sets kBulkMessageBytesMax, and its other methods call CheckRequestBytes first.
    int message_bytes_max = kMessageBytesMax;
    absl::Duration keepalive_interval = absl::Seconds(5);
    absl::Duration keepalive_timeout = absl::Seconds(3);
    absl::Duration connection_age_max = absl::Hours(1);
    absl::Duration connection_age_grace = absl::Seconds(60);
    // How long a client may be silent at first, and then take to say the rest of the handshake.
    absl::Duration handshake_max = absl::Seconds(10);
  };

  // NOT_SERVING while connections are closed because too few descriptors are left; so are "" and
  // the services.
  static constexpr absl::string_view kAcceptingService = "crossmesh.accepting";

  static constexpr int kMessageBytesMax = 1 << 20;
  static constexpr int kBulkMessageBytesMax = 4 << 20;
  static constexpr int kMetadataBytesMax = 8 << 10;
  static constexpr int kStreamsPerConnectionMax = 128;

  // Listens and serves; health of "" and of each service by its full name is SERVING.
  // InvalidArgument: no address, an address malformed or not local without `insecure`.
  // FailedPrecondition: an address is in use, or cannot be listened on for a reason that the
  // message gives.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const Options& options);

  // As Shutdown(0).
  ~RpcServer();

  // As given, with the port that was bound in place of 0.
  const std::vector<std::string>& addresses() const;

  // Answer of grpc.health.v1 for `name`, of "" for all services; another name is unknown until it
  // is set.
  void SetServing(absl::string_view name, bool serving);

  // Health of every name becomes NOT_SERVING, new calls are refused, calls in progress have `grace`
  // to end and are cancelled then. Returns when all have ended. Repeatable.
  void Shutdown(absl::Duration grace);

 private:
  struct Parts;

  explicit RpcServer(std::unique_ptr<Parts> parts);

  const std::unique_ptr<Parts> parts_;

  Mutex mutex_;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace crossmesh
