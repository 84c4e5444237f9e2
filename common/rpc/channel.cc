#include "common/rpc/channel.h"

#include "common/base/status_macros.h"
#include "common/rpc/address.h"
#include "common/rpc/deadline.h"
#include "common/rpc/library_hold.h"
#include "common/rpc/server.h"

#include <chrono>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int kReconnectPauseFirstMs = 100;

void SetSession(const RpcChannelOptions& options, grpc::ChannelArguments& arguments) {
  // Otherwise channels to one address share a connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive_interval));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(options.keepalive_timeout));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  // No limit: by default gRPC stops to ping after two pings without data.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> BuildRpcChannel(const RpcChannelOptions& options) {
  HoldRpcLibrary();
  ASSIGN_OR_RETURN(const RpcAddress address, ParseRpcAddress(options.address));
  RETURN_IF_ERROR(CheckPlaintextAllowed(address, options.insecure));
  if (!address.is_unix() && address.port == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("address ", options.address, ": expected a port to connect to, found 0"));
  }

  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(RpcServer::kBulkMessageBytesMax);
  arguments.SetMaxSendMessageSize(RpcServer::kBulkMessageBytesMax);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, RpcServer::kMetadataBytesMax);
  // Neither compressed nor, from a server that compresses, unpacked.
  arguments.SetCompressionAlgorithm(GRPC_COMPRESS_NONE);
  arguments.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
  // Daemons are reached directly: what the environment says of proxies is not for them.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectPauseFirstMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, Milliseconds(options.reconnect_pause_max));
  // GRPC_ARG_MIN_RECONNECT_BACKOFF_MS stays as it is: in effect it is the time that a connection
  // attempt may take, and a low one keeps a crowd of clients from ever connecting.
  if (options.session) SetSession(options, arguments);
  return grpc::CreateCustomChannel(address.ToString(), grpc::InsecureChannelCredentials(),
                                   arguments);
}

bool AwaitConnection(grpc::Channel& channel, absl::Duration timeout) {
  const auto deadline = std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout);
  while (true) {
    const grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY || state == GRPC_CHANNEL_TRANSIENT_FAILURE) return true;
    if (!channel.WaitForStateChange(state, deadline)) return false;
  }
}

}  // namespace crossmesh
