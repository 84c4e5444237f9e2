#pragma once

#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status_codec.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <grpcpp/client_context.h>

namespace crossmesh {

// Unary calls in progress to a service of workers, over one channel per address. Thread-safe; never
// blocks, but for Stop.
template <typename Service>
class UnaryCalls {
 public:
  using Stub = typename Service::Stub;
  template <typename Request, typename Response>
  using Method = void (Service::StubInterface::async_interface::*)(
      grpc::ClientContext*, const Request*, Response*, std::function<void(grpc::Status)>);
  template <typename Response>
  using OnEnd = absl::AnyInvocable<void(absl::StatusOr<Response>)>;

  // `insecure` allows addresses that are not local.
  explicit UnaryCalls(bool insecure) : insecure_(insecure) {}
  // As Stop.
  ~UnaryCalls() { Stop(); }
  UnaryCalls(const UnaryCalls&) = delete;
  UnaryCalls& operator=(const UnaryCalls&) = delete;

  // Calls a worker, which has `limit` to answer. `on_end` is called once, by any thread, maybe
  // before this returns: with the answer, the worker's error, Unavailable or DeadlineExceeded.
  template <typename Request, typename Response>
  void Start(const std::string& address, Method<Request, Response> method, Request request,
             absl::Duration limit, OnEnd<Response> on_end) {
    absl::StatusOr<std::shared_ptr<Stub>> stub = StubFor(address);
    if (!stub.ok()) return on_end(stub.status());
    auto call = std::make_shared<Call<Request, Response>>(*std::move(stub), std::move(request),
                                                          std::move(on_end));
    const auto context = std::make_shared<grpc::ClientContext>();
    if (!Enter(context)) {
      return call->on_end(absl::UnavailableError("the controller is stopping"));
    }
    SetDeadline(*context, limit);
    (call->stub->async()->*method)(context.get(), &call->request, &call->response,
                                   [this, call, context](const grpc::Status& status) {
                                     if (status.ok()) {
                                       call->on_end(std::move(call->response));
                                     } else {
                                       call->on_end(FromGrpcStatus(status));
                                     }
                                     Leave(context);
                                   });
  }

  // Breaks all calls off, and returns when every callback has been called. Repeatable. Calls end at
  // once from now on. Blocks.
  void Stop() {
    absl::flat_hash_map<std::string, std::shared_ptr<Stub>> stubs;  // go away without the lock
    absl::flat_hash_set<std::shared_ptr<grpc::ClientContext>> calls;
    {
      const MutexLock lock(mutex_);
      stopped_ = true;
      calls = calls_;
    }
    for (const std::shared_ptr<grpc::ClientContext>& context : calls) context->TryCancel();
    const MutexLock lock(mutex_);
    while (!calls_.empty()) empty_.Wait(mutex_);
    stubs.swap(stubs_);
  }

 private:
  // What a call needs until it is over.
  template <typename Request, typename Response>
  struct Call {
    Call(std::shared_ptr<Stub> call_stub, Request call_request, OnEnd<Response> call_on_end)
        : stub(std::move(call_stub)),
          request(std::move(call_request)),
          on_end(std::move(call_on_end)) {}

    const std::shared_ptr<Stub> stub;
    const Request request;
    Response response;
    OnEnd<Response> on_end;
  };

  // False: stopped.
  bool Enter(const std::shared_ptr<grpc::ClientContext>& context) {
    const MutexLock lock(mutex_);
    if (stopped_) return false;
    calls_.insert(context);
    return true;
  }
  void Leave(const std::shared_ptr<grpc::ClientContext>& context) {
    const MutexLock lock(mutex_);
    calls_.erase(context);
    if (calls_.empty()) empty_.SignalAll();
  }

  absl::StatusOr<std::shared_ptr<Stub>> StubFor(const std::string& address) {
    {
      const MutexLock lock(mutex_);
      const auto found = stubs_.find(address);
      if (found != stubs_.end()) return found->second;
    }
    ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                     BuildRpcChannel({.address = address, .insecure = insecure_}));
    std::shared_ptr<Stub> stub = Service::NewStub(channel);
    const MutexLock lock(mutex_);
    return stubs_.try_emplace(address, std::move(stub)).first->second;
  }

  const bool insecure_;

  Mutex mutex_;
  CondVar empty_;
  absl::flat_hash_map<std::string, std::shared_ptr<Stub>> stubs_ ABSL_GUARDED_BY(mutex_);
  // Of calls in progress.
  absl::flat_hash_set<std::shared_ptr<grpc::ClientContext>> calls_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace crossmesh
