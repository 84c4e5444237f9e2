#include "controller/store/etcd/etcd_client.h"

#include "common/base/error_place.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status_codec.h"

#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>
#include <grpcpp/client_context.h>

namespace crossmesh {
namespace {

// For an etcd that comes back to be found soon.
constexpr absl::Duration kReconnectPauseMax = absl::Seconds(1);
// Not as often as etcd forbids, which is every five seconds.
constexpr absl::Duration kWatchKeepalive = absl::Seconds(10);

absl::Status AtEtcd(const std::string& endpoint, const absl::Status& status) {
  return At(absl::StrCat("etcd at ", endpoint), status);
}

absl::Status EndOfCall(const grpc::Status& status, absl::Duration timeout) {
  if (status.error_code() != grpc::DEADLINE_EXCEEDED) return FromGrpcStatus(status);
  return absl::UnavailableError(
      absl::StrCat("expected an answer within ", FormatDuration(timeout)));
}

absl::Status Stopped() { return absl::UnavailableError("the client of etcd has stopped"); }

using KvMethods = etcdserverpb::KV::StubInterface::async_interface;
using LeaseMethods = etcdserverpb::Lease::StubInterface::async_interface;

}  // namespace

// What a call needs until it is over.
template <typename Stub, typename Request, typename Response>
struct EtcdCall {
  std::unique_ptr<Stub> stub;
  grpc::ClientContext context;
  Request request;
  Response response;
  EtcdClient::Done<Response> done;
};

// A stream with one watch.
class EtcdClient::WatchStream final
    : public ClientBidiStream<etcdserverpb::WatchRequest, etcdserverpb::WatchResponse> {
 public:
  WatchStream(EtcdClient& client, size_t member, EtcdWatchListener listener)
      : client_(client), member_(member), listener_(std::move(listener)) {}

 private:
  void OnMessage(etcdserverpb::WatchResponse response) override {
    if (!response.canceled()) return listener_.on_response(response);
    canceled_ = response.compact_revision() > 0
                    ? absl::OutOfRangeError(absl::StrCat(
                          "all before revision ", response.compact_revision(), " is compacted"))
                    : absl::UnavailableError(
                          absl::StrCat("the watch was cancelled: ", response.cancel_reason()));
    Cancel();
  }
  void OnEnd(const absl::Status& status) override {
    absl::Status end = canceled_.value_or(status);
    if (end.ok()) end = absl::UnavailableError("the watch has ended");
    client_.Judge(member_, end);
    listener_.on_end(AtEtcd(client_.members_[member_].endpoint, end));
    client_.open_.Leave(this);
  }

  EtcdClient& client_;
  const size_t member_;
  const EtcdWatchListener listener_;
  std::optional<absl::Status> canceled_;
};

absl::StatusOr<std::unique_ptr<EtcdClient>> EtcdClient::Create(const Options& options) {
  if (options.endpoints.empty()) return absl::InvalidArgumentError("expected an endpoint of etcd");
  std::vector<Member> members;
  for (const std::string& endpoint : options.endpoints) {
    RpcChannelOptions channel = {.address = endpoint,
                                 .insecure = options.insecure,
                                 .reconnect_pause_max = kReconnectPauseMax};
    Member member{.endpoint = endpoint, .channel = nullptr, .watch_channel = nullptr};
    ASSIGN_OR_RETURN(member.channel, At("etcd", BuildRpcChannel(channel)));
    channel.session = true;
    channel.keepalive_interval = kWatchKeepalive;
    ASSIGN_OR_RETURN(member.watch_channel, At("etcd", BuildRpcChannel(channel)));
    members.push_back(std::move(member));
  }
  return std::unique_ptr<EtcdClient>(new EtcdClient(std::move(members)));
}

template <typename Service, typename Request, typename Response>
void EtcdClient::Start(Method<Service, Request, Response> method, Request request,
                       absl::Duration timeout, Done<Response> done) {
  using Stub = typename Service::Stub;
  const size_t member = current_ % members_.size();
  auto call = std::make_shared<EtcdCall<Stub, Request, Response>>();
  call->stub = Service::NewStub(members_[member].channel);
  call->request = std::move(request);
  call->done = std::move(done);
  if (!open_.Enter(call.get(), [call] { call->context.TryCancel(); })) return call->done(Stopped());
  SetDeadline(call->context, timeout);
  (call->stub->async()->*method)(&call->context, &call->request, &call->response,
                                 [this, call, member, timeout](const grpc::Status& status) {
                                   const absl::Status end = EndOfCall(status, timeout);
                                   Judge(member, end);
                                   if (end.ok()) {
                                     call->done(std::move(call->response));
                                   } else {
                                     call->done(AtEtcd(members_[member].endpoint, end));
                                   }
                                   open_.Leave(call.get());
                                 });
}

void EtcdClient::Judge(size_t member, const absl::Status& status) {
  if (!absl::IsUnavailable(status)) return;
  size_t expected = current_;
  if (expected % members_.size() == member)
    current_.compare_exchange_strong(expected, expected + 1);
}

std::function<void()> EtcdClient::Watch(etcdserverpb::WatchCreateRequest request,
                                        EtcdWatchListener listener) {
  const size_t member = current_ % members_.size();
  auto stream = std::make_shared<WatchStream>(*this, member, listener);
  const auto cancel = [stream] { stream->Cancel(); };
  if (!open_.Enter(stream.get(), cancel)) {
    listener.on_end(Stopped());
    return [] {};
  }
  const std::shared_ptr<etcdserverpb::Watch::Stub> stub =
      etcdserverpb::Watch::NewStub(members_[member].watch_channel);
  WatchStream::Start(stream, [&stub](grpc::ClientContext* context, WatchStream::Reactor* reactor) {
    // A member that has lost the others ends it, where it would be silent otherwise.
    context->AddMetadata("hasleader", "true");
    stub->async()->Watch(context, reactor);
  });
  etcdserverpb::WatchRequest message;
  *message.mutable_create_request() = std::move(request);
  stream->Send(std::move(message));
  return cancel;
}

void EtcdClient::Range(etcdserverpb::RangeRequest request, absl::Duration timeout,
                       Done<etcdserverpb::RangeResponse> done) {
  Start<etcdserverpb::KV>(&KvMethods::Range, std::move(request), timeout, std::move(done));
}

void EtcdClient::Txn(etcdserverpb::TxnRequest request, absl::Duration timeout,
                     Done<etcdserverpb::TxnResponse> done) {
  Start<etcdserverpb::KV>(&KvMethods::Txn, std::move(request), timeout, std::move(done));
}

void EtcdClient::Compact(etcdserverpb::CompactionRequest request, absl::Duration timeout,
                         Done<etcdserverpb::CompactionResponse> done) {
  Start<etcdserverpb::KV>(&KvMethods::Compact, std::move(request), timeout, std::move(done));
}

void EtcdClient::LeaseGrant(etcdserverpb::LeaseGrantRequest request, absl::Duration timeout,
                            Done<etcdserverpb::LeaseGrantResponse> done) {
  Start<etcdserverpb::Lease>(&LeaseMethods::LeaseGrant, std::move(request), timeout,
                             std::move(done));
}

void EtcdClient::LeaseRevoke(etcdserverpb::LeaseRevokeRequest request, absl::Duration timeout,
                             Done<etcdserverpb::LeaseRevokeResponse> done) {
  Start<etcdserverpb::Lease>(&LeaseMethods::LeaseRevoke, std::move(request), timeout,
                             std::move(done));
}

void EtcdClient::LeaseKeepAlive(etcdserverpb::LeaseKeepAliveRequest request, absl::Duration timeout,
                                Done<etcdserverpb::LeaseKeepAliveResponse> done) {
  Start<etcdserverpb::Lease>(&LeaseMethods::LeaseKeepAlive, std::move(request), timeout,
                             std::move(done));
}

}  // namespace crossmesh
