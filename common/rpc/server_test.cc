#include "common/rpc/server.h"

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/testing/resource_limit.h"
#include "common/base/unique_fd.h"
#include "common/metrics/label_set.h"
#include "common/metrics/metric_names.h"
#include "common/metrics/rpc_metrics.h"
#include "common/metrics/testing/metric_value.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/health_check.h"
#include "common/rpc/request_size.h"
#include "common/rpc/status_codec.h"
#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "crossmesh/v1/mesh_service.grpc.pb.h"

#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/time/clock.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

namespace crossmesh {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

class Meshes final : public v1::MeshService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetMesh(grpc::CallbackServerContext* context,
                                    const v1::GetMeshRequest* request,
                                    v1::GetMeshResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    response->set_revision(static_cast<int64_t>(request->name().size()));
    reactor->Finish(ToGrpcStatus(request->name() == "none"
                                     ? absl::NotFoundError("mesh \"none\" is not registered")
                                     : CheckRequestBytes(*request)));
    return reactor;
  }
};

class ServerTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<RpcServer>> Start(const std::string& address,
                                                   int message_bytes_max = 1 << 20) {
    return RpcServer::Start({.addresses = {address},
                             .services = {&meshes_},
                             .metrics = &metrics_,
                             .message_bytes_max = message_bytes_max});
  }
  static std::shared_ptr<grpc::Channel> Connect(const RpcServer& server) {
    return Connect(server.addresses()[0]);
  }
  static std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
    auto channel = BuildRpcChannel({.address = address});
    CHECK_OK(channel);
    return *std::move(channel);
  }
  static absl::Status GetMesh(const std::shared_ptr<grpc::Channel>& channel,
                              const std::string& name,
                              absl::Duration timeout = kRpcDeadlineDefault) {
    grpc::ClientContext context;
    SetDeadline(context, timeout);
    return GetMesh(channel, name, context);
  }
  static absl::Status GetMesh(const std::shared_ptr<grpc::Channel>& channel,
                              const std::string& name, grpc::ClientContext& context) {
    v1::GetMeshRequest request;
    request.set_name(name);
    v1::GetMeshResponse response;
    return FromGrpcStatus(v1::MeshService::NewStub(channel)->GetMesh(&context, request, &response));
  }
  std::string SocketPath() const { return folder_.PathOf("s"); }
  std::string SocketAddress() const { return absl::StrCat("unix:", SocketPath()); }

  const TemporaryFolder folder_;
  Meshes meshes_;
  RpcMetrics metrics_{kControllerMethods};
};

// A Unix socket without a server that accepts; with `listening`, connections queue up.
UniqueFd BindSocket(const std::string& path, bool listening) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  if (listening) {
    EXPECT_EQ(listen(fd.get(), 1), 0);
  }
  return fd;
}

TEST_F(ServerTest, PortZeroIsResolved) {
  ASSERT_OK_AND_ASSIGN(const auto server, Start("127.0.0.1:0"));
  ASSERT_EQ(server->addresses().size(), 1u);
  EXPECT_THAT(server->addresses()[0], StartsWith("127.0.0.1:"));
  EXPECT_FALSE(absl::EndsWith(server->addresses()[0], ":0"));
  EXPECT_OK(GetMesh(Connect(*server), "a"));
}

TEST_F(ServerTest, APortInUseIsAnErrorThatNamesTheAddress) {
  ASSERT_OK_AND_ASSIGN(const auto first, Start("127.0.0.1:0"));
  EXPECT_THAT(Start(first->addresses()[0]),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(first->addresses()[0]), HasSubstr("another server"))));
}

TEST_F(ServerTest, ListensOnSeveralAddresses) {
  ASSERT_OK_AND_ASSIGN(
      const auto server,
      RpcServer::Start({.addresses = {SocketAddress(), "127.0.0.1:0"}, .services = {&meshes_}}));
  for (const std::string& address : server->addresses()) {
    ASSERT_OK_AND_ASSIGN(const auto channel, BuildRpcChannel({.address = address}));
    EXPECT_OK(GetMesh(channel, "a"));
  }
}

TEST_F(ServerTest, RefusesAddressesOfTheNetwork) {
  EXPECT_THAT(Start("0.0.0.0:0"), StatusIs(absl::StatusCode::kInvalidArgument,
                                           AllOf(HasSubstr("0.0.0.0:0"), HasSubstr("--insecure"))));
  EXPECT_THAT(RpcServer::Start({}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(BuildRpcChannel({.address = "10.0.0.1:80"}), IsRefused("--insecure"));
  EXPECT_THAT(BuildRpcChannel({.address = "127.0.0.1:0"}), IsRefused("found 0"));
}

TEST_F(ServerTest, WarnsWhenInsecure) {
  std::vector<LogRecord> warnings;
  const ScopedLogSink sink([&](const LogRecord& record) {
    if (record.level == LogLevel::kWarning) warnings.push_back(record);
  });
  ASSERT_OK_AND_ASSIGN(
      const auto server,
      RpcServer::Start({.addresses = {"0.0.0.0:0"}, .insecure = true, .services = {&meshes_}}));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].event, "insecure_listener");
}

TEST_F(ServerTest, AUnixSocketIsForItsOwnerOnlyAndGoesWithTheServer) {
  {
    ASSERT_OK_AND_ASSIGN(const auto server, Start(SocketAddress()));
    struct stat found = {};
    ASSERT_EQ(stat(SocketPath().c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0600u);
    EXPECT_OK(GetMesh(Connect(*server), "a"));
  }
  EXPECT_FALSE(std::filesystem::exists(SocketPath()));
}

TEST_F(ServerTest, AStaleSocketIsReplaced) {
  BindSocket(SocketPath(), false);
  ASSERT_OK_AND_ASSIGN(const auto server, Start(SocketAddress()));
  EXPECT_OK(GetMesh(Connect(*server), "a"));
}

TEST_F(ServerTest, ALiveSocketIsLeftAlone) {
  const UniqueFd live = BindSocket(SocketPath(), true);
  EXPECT_THAT(Start(SocketAddress()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(SocketAddress()), HasSubstr("another server"))));
  ASSERT_OK_AND_ASSIGN(const auto server, Start(SocketAddress() + "2"));
  EXPECT_THAT(Start(SocketAddress() + "2"), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_OK(GetMesh(Connect(*server), "a"));
}

TEST_F(ServerTest, AFileThatIsNoSocketIsLeftAlone) {
  std::filesystem::create_directory(SocketPath());
  EXPECT_THAT(Start(SocketAddress()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found another file")));
  EXPECT_THAT(Start(absl::StrCat("unix:", folder_.PathOf("none/s"))),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("No such file")));
}

TEST_F(ServerTest, RequestsAreLimited) {
  ASSERT_OK_AND_ASSIGN(const auto server, Start("127.0.0.1:0"));
  const auto channel = Connect(*server);
  EXPECT_OK(GetMesh(channel, std::string(1'000'000, 'a')));
  EXPECT_THAT(GetMesh(channel, std::string(1'100'000, 'a')),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(ServerTest, OrdinaryRequestsOfABulkServerAreLimitedByTheirMethod) {
  ASSERT_OK_AND_ASSIGN(const auto server, Start("127.0.0.1:0", RpcServer::kBulkMessageBytesMax));
  EXPECT_THAT(GetMesh(Connect(*server), std::string(1'100'000, 'a')),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("crossmesh.v1.GetMeshRequest"), HasSubstr("1048576"))));
}

TEST_F(ServerTest, CompressedRequestsAreRefused) {
  ASSERT_OK_AND_ASSIGN(const auto server, Start("127.0.0.1:0"));
  grpc::ChannelArguments arguments;
  arguments.SetCompressionAlgorithm(GRPC_COMPRESS_GZIP);
  const auto channel = grpc::CreateCustomChannel(server->addresses()[0],
                                                 grpc::InsecureChannelCredentials(), arguments);
  EXPECT_THAT(GetMesh(channel, std::string(100'000, 'a')),
              StatusIs(absl::StatusCode::kUnimplemented));
}

TEST_F(ServerTest, MetadataIsLimited) {
  ASSERT_OK_AND_ASSIGN(const auto server, Start("127.0.0.1:0"));
  grpc::ClientContext context;
  SetDeadline(context);
  context.AddMetadata("x-large", std::string(9'000, 'a'));
  EXPECT_FALSE(GetMesh(Connect(*server), "a", context).ok());
}

TEST_F(ServerTest, CallsAreLoggedAndCounted) {
  Mutex mutex;
  std::vector<std::string> lines;
  const ScopedLogSink sink([&](const LogRecord& record) {
    MutexLock lock(mutex);
    if (record.event == "rpc") lines.push_back(record.ToJson());
  });
  ASSERT_OK_AND_ASSIGN(const auto server, Start("127.0.0.1:0"));
  EXPECT_THAT(GetMesh(Connect(*server), "none"), StatusIs(absl::StatusCode::kNotFound));
  server->Shutdown(absl::Seconds(10));
  EXPECT_EQ(ValueOf(metrics_.metrics(), metric::kRpcStarted, "GetMesh"), 1);
  EXPECT_EQ(ValueOf(metrics_.metrics(), metric::kRpcInFlight, "GetMesh"), 0);
  EXPECT_EQ(ValueOf(metrics_.metrics(), metric::kRpcHandled, "NOT_FOUND"), 1);
  MutexLock lock(mutex);
  EXPECT_THAT(lines,
              ElementsAre(AllOf(HasSubstr(R"("method":"/crossmesh.v1.MeshService/GetMesh")"),
                                HasSubstr(R"("code":"NOT_FOUND")"), HasSubstr(R"("level":"info")"),
                                HasSubstr(R"("duration_ms":)"))));
}

// What a client of HTTP/2 says first: the preface, and settings without a setting.
std::string Preface() {
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string("\0\0\0\4\0\0\0\0\0", 9);
}

// A client of the Unix socket that says only this. A minute without an answer is an error.
UniqueFd ConnectRaw(const std::string& path, const std::string& said) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience = {.tv_sec = 60, .tv_usec = 0};
  EXPECT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
  sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  // It may be closed by now.
  static_cast<void>(send(fd.get(), said.data(), said.size(), MSG_NOSIGNAL));
  return fd;
}

// Has the server closed it, or is there a byte? Waits for one or the other.
bool IsClosed(const UniqueFd& client) {
  char byte = 0;
  const ssize_t size = recv(client.get(), &byte, 1, 0);
  return size == 0 || (size < 0 && errno == ECONNRESET);
}

void ExpectEnd(const UniqueFd& client) {
  std::array<char, 256> said;
  ssize_t size = 1;
  while (size > 0) size = recv(client.get(), said.data(), said.size(), 0);
  EXPECT_TRUE(size == 0 || errno == ECONNRESET) << "errno " << errno;
}

TEST_F(ServerTest, ClientsThatDoNotFinishTheHandshakeAreEnded) {
  ASSERT_OK_AND_ASSIGN(
      const auto server,
      RpcServer::Start({.addresses = {SocketAddress()}, .handshake_max = absl::Milliseconds(200)}));
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 300; ++i) clients.push_back(ConnectRaw(SocketPath(), ""));
  clients.push_back(ConnectRaw(SocketPath(), "PRI"));
  clients.push_back(ConnectRaw(SocketPath(), Preface().substr(0, 24)));
  for (const UniqueFd& client : clients) ExpectEnd(client);
}

TEST_F(ServerTest, ServesAgainAsSoonAsDescriptorsAreFree) {
  ASSERT_OK_AND_ASSIGN(const auto server, Start(SocketAddress()));
  const auto channel = Connect(*server);
  ASSERT_OK(GetMesh(channel, "a"));
  const ScopedResourceLimit limit(RLIMIT_NOFILE, LowestFreeDescriptor() + 100);
  std::vector<UniqueFd> clients;
  do {
    ASSERT_LT(clients.size(), 100U);
    clients.push_back(ConnectRaw(SocketPath(), Preface()));
  } while (!IsClosed(clients.back()));
  EXPECT_THAT(IsServing(channel, RpcServer::kAcceptingService, absl::Seconds(10)),
              IsOkAndHolds(false));
  EXPECT_THAT(IsServing(channel, "", absl::Seconds(10)), IsOkAndHolds(false));
  EXPECT_GE(ValueOf(metrics_.metrics(), metric::kConnectionsRefused, "descriptors"), 1);

  clients.clear();
  grpc::ClientContext context;
  SetDeadline(context, absl::Seconds(10));
  context.set_wait_for_ready(true);
  EXPECT_OK(GetMesh(Connect(*server), "a", context));
  for (const absl::string_view name : {RpcServer::kAcceptingService, absl::string_view()}) {
    const absl::Time end = absl::Now() + absl::Seconds(30);
    absl::StatusOr<bool> serving = false;
    while (serving.ok() && !*serving && absl::Now() < end) {
      serving = IsServing(channel, name, absl::Seconds(10));
    }
    EXPECT_THAT(serving, IsOkAndHolds(true)) << name;
  }
}

TEST_F(ServerTest, HealthOfAllStaysAsItWasSet) {
  ASSERT_OK_AND_ASSIGN(const auto server, Start("127.0.0.1:0"));
  server->SetServing("", false);
  EXPECT_THAT(IsServing(Connect(*server), "", absl::Seconds(10)), IsOkAndHolds(false));
}

TEST_F(ServerTest, ListensOnAllThatANameStandsFor) {
  ASSERT_OK_AND_ASSIGN(const auto server, Start("localhost:0"));
  const std::string& address = server->addresses()[0];
  ASSERT_THAT(address, StartsWith("localhost:"));
  // By its number, since Debian's c-ares leaks some bytes of each name that it resolves.
  EXPECT_OK(GetMesh(Connect(absl::StrCat("127.0.0.1", address.substr(address.find(':')))), "a"));
}

// What a method answers to these bytes.
absl::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::string& bytes) {
  grpc::ClientContext context;
  SetDeadline(context);
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(channel);
  const auto call = stub.PrepareUnaryCall(&context, method, request, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return FromGrpcStatus(status);
}

TEST_F(ServerTest, ARequestThatIsNoneIsInvalid) {
  ASSERT_OK_AND_ASSIGN(const auto server, Start("127.0.0.1:0"));
  const std::string method = "/crossmesh.v1.MeshService/GetMesh";
  EXPECT_OK(CallRaw(Connect(*server), method, ""));
  EXPECT_THAT(CallRaw(Connect(*server), method, "\xff"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(method)));
  EXPECT_THAT(CallRaw(Connect(*server), method + "s", "\xff"),
              StatusIs(absl::StatusCode::kUnimplemented));
}

TEST_F(ServerTest, HealthIsServedByName) {
  constexpr absl::Duration kTimeout = absl::Seconds(10);
  ASSERT_OK_AND_ASSIGN(const auto server, Start("127.0.0.1:0"));
  const auto channel = Connect(*server);
  EXPECT_THAT(IsServing(channel, "", kTimeout), IsOkAndHolds(true));
  // As a client of the standard asks: of a service.
  const std::string service = v1::MeshService::service_full_name();
  EXPECT_THAT(IsServing(channel, service, kTimeout), IsOkAndHolds(true));
  server->SetServing("", false);
  EXPECT_THAT(IsServing(channel, service, kTimeout), IsOkAndHolds(false));
  EXPECT_THAT(IsServing(channel, "read", kTimeout), StatusIs(absl::StatusCode::kNotFound));
  server->SetServing("read", true);
  EXPECT_THAT(IsServing(channel, "read", kTimeout), IsOkAndHolds(true));
  server->SetServing("read", false);
  EXPECT_THAT(IsServing(channel, "read", kTimeout), IsOkAndHolds(false));
}

}  // namespace
}  // namespace crossmesh
