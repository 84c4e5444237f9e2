#pragma once

#include "common/base/mutex.h"
#include "common/rpc/open_calls.h"
#include "etcd/rpc.grpc.pb.h"

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

namespace crossmesh {

// Who hears of a watch; called by gRPC's threads, one call after the other. Must not block.
struct EtcdWatchListener {
  std::function<void(const etcdserverpb::WatchResponse&)> on_response;
  // Last. OutOfRange: what was asked for is compacted. Otherwise as calls end.
  std::function<void(const absl::Status&)> on_end;
};

// Calls to an etcd of one or more members, by endpoints, one of which is used until it fails: then
// the next. A call that has failed is not repeated here, since what it asked for may have been
// done. Errors name the endpoint. Thread-safe; never blocks, but for Await and Stop.
class EtcdClient {
 public:
  struct Options {
    // Forms of RpcAddress with a port, at least one.
    std::vector<std::string> endpoints;
    // Allows endpoints that are not local. Nothing is encrypted: certificates would be given here.
    bool insecure = false;
  };
  // Called once, by any thread, maybe before the call returns: the answer, etcd's error, or
  // Unavailable, also when no answer came in time. Must not block.
  template <typename Response>
  using Done = absl::AnyInvocable<void(absl::StatusOr<Response>)>;
  template <typename Request, typename Response>
  using Call = void (EtcdClient::*)(Request, absl::Duration, Done<Response>);

  // Connects when it is first used. InvalidArgument: no endpoint, or one as BuildRpcChannel says.
  static absl::StatusOr<std::unique_ptr<EtcdClient>> Create(const Options& options);
  // As Stop.
  ~EtcdClient() { Stop(); }
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  // Each has `timeout` to be answered.
  void Range(etcdserverpb::RangeRequest request, absl::Duration timeout,
             Done<etcdserverpb::RangeResponse> done);
  void Txn(etcdserverpb::TxnRequest request, absl::Duration timeout,
           Done<etcdserverpb::TxnResponse> done);
  void Compact(etcdserverpb::CompactionRequest request, absl::Duration timeout,
               Done<etcdserverpb::CompactionResponse> done);
  void LeaseGrant(etcdserverpb::LeaseGrantRequest request, absl::Duration timeout,
                  Done<etcdserverpb::LeaseGrantResponse> done);
  void LeaseRevoke(etcdserverpb::LeaseRevokeRequest request, absl::Duration timeout,
                   Done<etcdserverpb::LeaseRevokeResponse> done);
  void LeaseKeepAlive(etcdserverpb::LeaseKeepAliveRequest request, absl::Duration timeout,
                      Done<etcdserverpb::LeaseKeepAliveResponse> done);

  // Makes a call and waits for its end: not for threads that others wait for.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Await(Call<Request, Response> call, Request request,
                                 absl::Duration timeout);

  // Watches until it is cancelled, by the function that is returned, which may be called at any
  // time and repeatedly, or breaks.
  std::function<void()> Watch(etcdserverpb::WatchCreateRequest request, EtcdWatchListener listener);

  // Breaks all calls and watches off, and returns when all have heard their end. Repeatable. Calls
  // end at once from now on. Blocks.
  void Stop() { open_.Stop(); }

 private:
  class WatchStream;
  struct Member {
    std::string endpoint;
    std::shared_ptr<grpc::Channel> channel;
    // For watches: one that notices a peer that has gone silent.
    std::shared_ptr<grpc::Channel> watch_channel;
  };

  explicit EtcdClient(std::vector<Member> members) : members_(std::move(members)) {}

  template <typename Service, typename Request, typename Response>
  using Method = void (Service::StubInterface::async_interface::*)(
      grpc::ClientContext*, const Request*, Response*, std::function<void(grpc::Status)>);
  template <typename Service, typename Request, typename Response>
  void Start(Method<Service, Request, Response> method, Request request, absl::Duration timeout,
             Done<Response> done);
  // What has failed is not to be used next.
  void Judge(size_t member, const absl::Status& status);

  const std::vector<Member> members_;
  std::atomic<size_t> current_ = 0;
  OpenCalls open_;
};

template <typename Request, typename Response>
absl::StatusOr<Response> EtcdClient::Await(Call<Request, Response> call, Request request,
                                           absl::Duration timeout) {
  Mutex mutex;
  CondVar is_done;
  std::unique_ptr<absl::StatusOr<Response>> result;
  (this->*call)(std::move(request), timeout, [&](absl::StatusOr<Response> response) {
    const MutexLock lock(mutex);
    result = std::make_unique<absl::StatusOr<Response>>(std::move(response));
    is_done.SignalAll();
  });
  const MutexLock lock(mutex);
  while (result == nullptr) is_done.Wait(mutex);
  return *std::move(result);
}

}  // namespace crossmesh
