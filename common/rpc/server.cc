#include "common/rpc/server.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/rpc/address.h"
#include "common/rpc/call_observer.h"
#include "common/rpc/library_hold.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <grpc/support/time.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace crossmesh {
namespace {

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

absl::StatusOr<std::vector<RpcAddress>> ParseAddresses(const RpcServer::Options& options) {
  if (options.addresses.empty()) {
    return absl::InvalidArgumentError("a server needs an address to listen on, found none");
  }
  std::vector<RpcAddress> result;
  for (const std::string& text : options.addresses) {
    ASSIGN_OR_RETURN(RpcAddress address, ParseRpcAddress(text));
    RETURN_IF_ERROR(CheckPlaintextAllowed(address, options.insecure));
    result.push_back(std::move(address));
  }
  return result;
}

void SetLimits(const RpcServer::Options& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(options.message_bytes_max);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, RpcServer::kMetadataBytesMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, RpcServer::kStreamsPerConnectionMax);
  // gRPC unpacks a compressed message before it looks at its size: half a megabyte can become
  // hundreds. Refused, with Unimplemented.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  // Otherwise a second server would silently share the port.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

// Pings while calls are open, and only then: a client of the synchronous API answers pings only
// while it is in a call, and would lose its idle connection to them.
void SetKeepalive(const RpcServer::Options& options, grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, Milliseconds(options.keepalive_interval));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             Milliseconds(options.keepalive_timeout));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  // No limit of pings between data, and clients may ping this often.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             Milliseconds(options.keepalive_interval) * 2 / 5);
  // The grace is without end when it is not set.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                             Milliseconds(options.connection_age_max));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                             Milliseconds(options.connection_age_grace));
}

absl::Status CannotListen(const RpcAddress& address, absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot listen on ", address.ToString(), ": ", why));
}

absl::Status CannotListen(const RpcAddress& address, int error) {
  return CannotListen(address, std::strerror(error));  // NOLINT(concurrency-mt-unsafe)
}

sockaddr_un UnixSocketAddress(const RpcAddress& address) {
  sockaddr_un result = {.sun_family = AF_UNIX, .sun_path = {}};
  address.unix_path.copy(result.sun_path, sizeof(result.sun_path) - 1);
  return result;
}

// Whether `bind` accepts the address now; errno tells why not.
int BindError(const sockaddr* address, socklen_t size) {
  const UniqueFd fd(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // As gRPC does: else a port whose connections are still closing would be called taken.
  const int on = 1;
  if (!fd.valid() || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(fd.get(), address, size) != 0) {
    return errno;
  }
  return 0;
}

// Makes way for a Unix socket: removes a socket file that no server listens on. FailedPrecondition:
// a server does, or the file is no socket. (gRPC itself would take the file from a live server.)
absl::Status RemoveStaleSocket(const RpcAddress& address) {
  struct stat found = {};
  if (lstat(address.unix_path.c_str(), &found) != 0) {
    // Other errors are the listening call's to meet, and to explain.
    return absl::OkStatus();
  }
  if (!S_ISSOCK(found.st_mode)) {
    return CannotListen(address, "expected a socket or no file there, found another file");
  }
  const UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return CannotListen(address, errno);
  const sockaddr_un name = UnixSocketAddress(address);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 ||
      errno != ECONNREFUSED) {
    return CannotListen(address, "another server listens there");
  }
  if (unlink(address.unix_path.c_str()) != 0 && errno != ENOENT) {
    return CannotListen(address, errno);
  }
  return absl::OkStatus();
}

// Why the address cannot be listened on, after gRPC has failed to without a reason:
// FailedPrecondition with the system's message.
absl::Status ExplainListenFailure(const RpcAddress& address) {
  if (address.is_unix()) {
    const sockaddr_un name = UnixSocketAddress(address);
    const int error = BindError(reinterpret_cast<const sockaddr*>(&name), sizeof(name));
    if (error != 0) return CannotListen(address, error);
    // The attempt itself has just made the file.
    unlink(address.unix_path.c_str());
    return CannotListen(address, "the reason is gone by now");
  }
  const addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int resolved =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (resolved != 0) return CannotListen(address, gai_strerror(resolved));
  const absl::Cleanup release = [found] { freeaddrinfo(found); };
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const int error = BindError(one->ai_addr, one->ai_addrlen);
    if (error == EADDRINUSE) return CannotListen(address, "another server listens there");
    if (error != 0) return CannotListen(address, error);
  }
  return CannotListen(address, "the reason is gone by now");
}

// What gRPC knows per process rather than per server.
void EnableStandardServices() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const Options& options) {
  HoldRpcLibrary();
  ASSIGN_OR_RETURN(std::vector<RpcAddress> addresses, ParseAddresses(options));
  EnableStandardServices();

  grpc::ServerBuilder builder;
  SetLimits(options, builder);
  SetKeepalive(options, builder);
  // Reflection is served by the synchronous API: one thread is enough for it.
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
  // How long a shutdown may wait for that thread to look up; the default is ten seconds.
  builder.SetSyncServerOption(grpc::ServerBuilder::CQ_TIMEOUT_MSEC, 500);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> observers;
  observers.push_back(MakeCallObserver(options.metrics));
  builder.experimental().SetInterceptorCreators(std::move(observers));
  for (grpc::Service* service : options.services) builder.RegisterService(service);

  std::vector<int> ports(addresses.size(), 0);
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (addresses[i].is_unix()) RETURN_IF_ERROR(RemoveStaleSocket(addresses[i]));
    builder.AddListeningPort(addresses[i].ToString(), grpc::InsecureServerCredentials(), &ports[i]);
  }

  std::unique_ptr<grpc::Server> server;
  {
    // Sockets are for their owner only, from the moment that they exist.
    const mode_t before = umask(0177);
    const absl::Cleanup restore = [before] { umask(before); };
    server = builder.BuildAndStart();
  }

  std::vector<std::string> bound;
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (ports[i] <= 0) return ExplainListenFailure(addresses[i]);
    if (!addresses[i].is_unix()) addresses[i].port = static_cast<uint16_t>(ports[i]);
    bound.push_back(addresses[i].ToString());
    if (!addresses[i].local()) LogWarning("insecure_listener", {{"address", bound.back()}});
  }
  if (server == nullptr) return absl::InternalError("gRPC started no server and gave no reason");
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(server), std::move(bound)));
}

RpcServer::RpcServer(std::unique_ptr<grpc::Server> server, std::vector<std::string> addresses)
    : server_(std::move(server)), addresses_(std::move(addresses)) {}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::SetServing(absl::string_view name, bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(std::string(name), serving);
}

void RpcServer::Shutdown(absl::Duration grace) {
  {
    MutexLock lock(mutex_);
    if (std::exchange(shut_down_, true)) return;
  }
  server_->GetHealthCheckService()->Shutdown();
  server_->Shutdown(gpr_time_from_millis(absl::ToInt64Milliseconds(grace), GPR_TIMESPAN));
  server_->Wait();
}

absl::Status CheckRequestBytes(const google::protobuf::Message& request) {
  const size_t bytes = request.ByteSizeLong();
  if (bytes <= RpcServer::kMessageBytesMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(request.GetTypeName(), " has ", bytes,
                                                   " bytes, expected at most ",
                                                   static_cast<int>(RpcServer::kMessageBytesMax)));
}

}  // namespace crossmesh
