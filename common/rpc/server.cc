#include "common/rpc/server.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/event_loop/event_loop.h"
#include "common/rpc/address.h"
#include "common/rpc/call_observer.h"
#include "common/rpc/connection_acceptor.h"
#include "common/rpc/deadline.h"
#include "common/rpc/library_hold.h"
#include "common/rpc/listening_address.h"
#include "common/rpc/service_names.h"

#include <utility>

#include <grpc/support/time.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

namespace crossmesh {
namespace {

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
  // From the first byte to the end of the handshake; two minutes by default.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             Milliseconds(options.handshake_max));
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

void SetThreads(grpc::ServerBuilder& builder) {
  // Reflection is served by the synchronous API: one thread is enough for it.
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
  // How long a shutdown may wait for that thread to look up; the default is ten seconds.
  builder.SetSyncServerOption(grpc::ServerBuilder::CQ_TIMEOUT_MSEC, 500);
}

// What gRPC knows per process rather than per server.
void EnableStandardServices() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
}

absl::StatusOr<std::vector<ListeningAddress>> ListenOnAll(const RpcServer::Options& options) {
  ASSIGN_OR_RETURN(const std::vector<RpcAddress> addresses, ParseAddresses(options));
  std::vector<ListeningAddress> result;
  for (const RpcAddress& address : addresses) {
    ASSIGN_OR_RETURN(result.emplace_back(), ListenOn(address, options.keepalive_timeout));
  }
  return result;
}

std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> TakeConnections(
    grpc::ServerBuilder& builder) {
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  return builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD,
                                                              grpc::InsecureServerCredentials());
}

}  // namespace

// What serves. Members are destroyed from the last to the first.
struct RpcServer::Parts {
  void SetServing(absl::string_view name, bool serves) {
    server->GetHealthCheckService()->SetServingStatus(std::string(name), serves);
  }
  // On the loop.
  void PublishAccepting() {
    for (const std::string& name : service_names) SetServing(name, serving && accepting);
    SetServing(kAcceptingService, accepting);
  }
  ConnectionAcceptor::Calls CallsOfAcceptor(RpcMetrics* metrics);

  const RealClock clock;
  std::vector<std::string> addresses;
  std::vector<std::string> service_names;  // "", which is all of them, among them
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections;  // of `server`
  std::unique_ptr<EventLoop> loop;
  std::unique_ptr<ConnectionAcceptor> acceptor;

  // Confined to the loop: what the services were set to, and whether connections are accepted.
  bool serving = true;
  bool accepting = true;
};

ConnectionAcceptor::Calls RpcServer::Parts::CallsOfAcceptor(RpcMetrics* metrics) {
  return {.take =
              [this](UniqueFd connection) {
                grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters taken;
                taken.fd = connection.Release();
                connections->HandleNewConnection(&taken);
              },
          .refused =
              [metrics](ConnectionRefusal reason) {
                if (metrics != nullptr) metrics->ConnectionRefused(reason);
              },
          .accepting_changed =
              [this](bool now) {
                accepting = now;
                PublishAccepting();
              }};
}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const Options& options) {
  HoldRpcLibrary();
  ASSIGN_OR_RETURN(std::vector<ListeningAddress> listening, ListenOnAll(options));
  EnableStandardServices();
  grpc::ServerBuilder builder;
  SetLimits(options, builder);
  SetKeepalive(options, builder);
  SetThreads(builder);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> observers;
  observers.push_back(MakeCallObserver(options.metrics, options.may_answer));
  builder.experimental().SetInterceptorCreators(std::move(observers));
  for (grpc::Service* service : options.services) builder.RegisterService(service);
  if (options.other_calls != nullptr) builder.RegisterCallbackGenericService(options.other_calls);

  auto parts = std::make_unique<Parts>();
  for (const ListeningAddress& one : listening) {
    parts->addresses.push_back(one.address.ToString());
    if (!one.address.local()) {
      LogWarning("insecure_listener", {{"address", parts->addresses.back()}});
    }
  }
  ASSIGN_OR_RETURN(parts->loop, EventLoop::Create(parts->clock, {.name = "accept",
                                                                 .spin = absl::ZeroDuration()}));
  ASSIGN_OR_RETURN(parts->acceptor,
                   ConnectionAcceptor::Create(*parts->loop, parts->clock, std::move(listening),
                                              {.silence_max = options.handshake_max}));
  parts->connections = TakeConnections(builder);
  CollectServiceNames(parts->service_names, builder);
  parts->server = builder.BuildAndStart();
  if (parts->server == nullptr) {
    return absl::InternalError("gRPC started no server and gave no reason");
  }
  parts->service_names.emplace_back();
  parts->PublishAccepting();
  parts->acceptor->Start(parts->CallsOfAcceptor(options.metrics));
  parts->loop->Start();
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(parts)));
}

RpcServer::RpcServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

const std::vector<std::string>& RpcServer::addresses() const { return parts_->addresses; }

void RpcServer::SetServing(absl::string_view name, bool serving) {
  if (!name.empty()) {
    parts_->SetServing(name, serving);
    return;
  }
  parts_->loop->RunAndWait([this, serving] {
    parts_->serving = serving;
    parts_->PublishAccepting();
  });
}

void RpcServer::Shutdown(absl::Duration grace) {
  {
    MutexLock lock(mutex_);
    if (std::exchange(shut_down_, true)) return;
  }
  parts_->server->GetHealthCheckService()->Shutdown();
  // gRPC takes no connection once it shuts down, and would leave it open.
  parts_->loop->Stop();
  parts_->acceptor.reset();
  parts_->server->Shutdown(gpr_time_from_millis(absl::ToInt64Milliseconds(grace), GPR_TIMESPAN));
  parts_->server->Wait();
}

}  // namespace crossmesh
