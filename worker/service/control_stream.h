#pragma once

#include "common/event_loop/event_loop.h"
#include "common/rpc/server_streams.h"
#include "worker/wire/caller.h"

#include <memory>
#include <utility>

#include <absl/status/status.h>

namespace crossmesh {

// A controller's call, as gRPC sees it: brings its messages, in order, to the control loop, where
// `Protocol` (ExecuteCall, ServedProgram) knows what they mean. Protocol has OnRequest and OnGone.
// Thread-safe.
template <typename Request, typename Response, typename Protocol>
class ControlStream final : public ServerBidiStream<Request, Response>, public Caller<Response> {
 public:
  using Stream = ServerBidiStream<Request, Response>;

  explicit ControlStream(EventLoop& control) : control_(control) {}

  // `on` is what the protocol works on, and outlives the server.
  template <typename On>
  static typename Stream::Reactor* Open(EventLoop& control, On& on) {
    auto stream = std::make_shared<ControlStream>(control);
    // The call and the stream keep each other until the stream has ended.
    stream->call_ = std::make_shared<Protocol>(on, stream);
    return Stream::Serve(std::move(stream));
  }

  void Say(const Response& response) override { this->Send(response); }
  void End(const absl::Status& status) override { Stream::End(status); }

 private:
  void OnMessage(Request request) override {
    control_.Post([call = call_, request = std::move(request)] { call->OnRequest(request); });
  }
  // The protocol ends the call, so that the caller still hears what is said after its last word.
  void OnMessagesEnd() override {}
  void OnEnd() override {
    control_.Post([call = std::move(call_)] { call->OnGone(); });
  }

  EventLoop& control_;
  std::shared_ptr<Protocol> call_;
};

}  // namespace crossmesh
