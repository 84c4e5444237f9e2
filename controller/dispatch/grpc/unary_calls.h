#pragma once

#include "common/rpc/deadline.h"
#include "common/rpc/open_calls.h"
#include "common/rpc/status_codec.h"
#include "controller/dispatch/grpc/worker_channels.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <grpcpp/client_context.h>

namespace crossmesh {

// Unary calls in progress to a service of workers. Thread-safe; never blocks, but for Stop.
template <typename Service>
class UnaryCalls {
 public:
  using Stub = typename Service::Stub;
  template <typename Request, typename Response>
  using Method = void (Service::StubInterface::async_interface::*)(
      grpc::ClientContext*, const Request*, Response*, std::function<void(grpc::Status)>);

  // `channels` must outlive it.
  explicit UnaryCalls(WorkerChannels& channels) : channels_(channels) {}
  // As Stop.
  ~UnaryCalls() { Stop(); }
  UnaryCalls(const UnaryCalls&) = delete;
  UnaryCalls& operator=(const UnaryCalls&) = delete;

  // What is called, and the time that the worker has to answer.
  template <typename Request, typename Response>
  struct Target {
    std::string address;
    Method<Request, Response> method;
    absl::Duration limit;
  };
  // `on_end` is called once, by any thread, maybe before this returns: with what `result_of` makes
  // of the answer, the worker's error, Unavailable or DeadlineExceeded.
  template <typename Response, typename Request, typename OnEnd, typename ResultOf>
  void Start(const Target<Request, Response>& target, Request request, OnEnd on_end,
             ResultOf result_of) {
    const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
        channels_.ChannelTo(target.address);
    if (!channel.ok()) return on_end(channel.status());
    auto call = std::make_shared<Call<Request, Response, OnEnd>>(
        Service::NewStub(*channel), std::move(request), std::move(on_end));
    if (!open_.Enter(call.get(), [call] { call->context.TryCancel(); })) {
      return call->on_end(absl::UnavailableError("the controller is stopping"));
    }
    SetDeadline(call->context, target.limit);
    (call->stub->async()->*target.method)(&call->context, &call->request, &call->response,
                                          [this, call, result_of](const grpc::Status& status) {
                                            if (status.ok()) {
                                              call->on_end(result_of(call->response));
                                            } else {
                                              call->on_end(FromGrpcStatus(status));
                                            }
                                            open_.Leave(call.get());
                                          });
  }

  // Breaks all calls off, and returns when every callback has been called. Repeatable. Calls end at
  // once from now on. Blocks.
  void Stop() { open_.Stop(); }

 private:
  // What a call needs until it is over.
  template <typename Request, typename Response, typename OnEnd>
  struct Call {
    Call(std::unique_ptr<Stub> call_stub, Request call_request, OnEnd call_on_end)
        : stub(std::move(call_stub)),
          request(std::move(call_request)),
          on_end(std::move(call_on_end)) {}

    const std::unique_ptr<Stub> stub;
    grpc::ClientContext context;
    const Request request;
    Response response;
    OnEnd on_end;
  };

  WorkerChannels& channels_;
  OpenCalls open_;
};

}  // namespace crossmesh
