#pragma once

#include "common/rpc/outgoing_queue.h"
#include "common/rpc/status_codec.h"

#include <memory>
#include <utility>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/time/time.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

namespace crossmesh {

// The client's end of a bidirectional call, over gRPC's callback API. Shared by gRPC, until the
// call is over, and by its senders, which may keep it longer.
//
//   auto session = std::make_shared<Session>(...);       // derives from ClientBidiStream
//   Session::Start(session, [&](grpc::ClientContext* context, Session::Reactor* reactor) {
//     stub.async()->WorkerSession(context, reactor);
//   });
//
// Threads: what is virtual is called by gRPC's threads, one call after the other, and must not
// block; OnEnd comes last. Send, CloseWrites and Cancel may be called by any thread after Start and
// never block. Thread-safe.
template <typename Request, typename Response>
class ClientBidiStream : private grpc::ClientBidiReactor<Request, Response> {
 public:
  using Reactor = grpc::ClientBidiReactor<Request, Response>;

  ClientBidiStream() = default;
  ~ClientBidiStream() override = default;
  ClientBidiStream(const ClientBidiStream&) = delete;
  ClientBidiStream& operator=(const ClientBidiStream&) = delete;

  // Starts the call by `call`, which gives both of its arguments to the stub's async method and may
  // set metadata and deadline of the context before. OnEnd comes exactly once from here on.
  static void Start(std::shared_ptr<ClientBidiStream> stream,
                    absl::FunctionRef<void(grpc::ClientContext*, Reactor*)> call) {
    ClientBidiStream& started = *stream;
    started.self_ = std::move(stream);
    call(&started.context_, &started);
    // Writes begin outside of gRPC's own calls. Without a hold, gRPC could see a stream without
    // operations, end it and free it under a sender's feet. The writing half gives it up.
    started.AddHold();
    started.StartRead(&started.response_);
    started.StartCall();
  }

  // Queues a message. False when the call is ending or over, or is cancelled now because
  // OutgoingQueue::kMessagesMax messages wait for a slow peer.
  bool Send(Request request) {
    typename Queue::Action action;
    const bool taken = outgoing_.Push(std::move(request), action);
    Do(action);
    if (outgoing_.overflowed()) Cancel();
    return taken;
  }

  // Tells the server, after what is queued, that nothing more comes.
  void CloseWrites() { Do(outgoing_.Close(absl::OkStatus())); }

  // Ends the call at once, with Cancelled. Repeatable.
  void Cancel() { context_.TryCancel(); }

 private:
  using Queue = OutgoingQueue<Request>;

  // The next message; the one after it is read when this returns.
  virtual void OnMessage(Response response) = 0;
  // The call is over.
  virtual void OnEnd(const absl::Status& status) = 0;

  void Do(typename Queue::Action action) {
    if (action == Queue::Action::kWrite) this->StartWrite(&outgoing_.front());
    if (action == Queue::Action::kFinish) {
      this->StartWritesDone();
      this->RemoveHold();
    }
  }

  void OnReadDone(bool ok) final {
    if (!ok) {
      // The server has ended the call; its status comes with OnDone.
      Do(outgoing_.Abort(absl::CancelledError("the server has ended the call")));
      return;
    }
    OnMessage(std::exchange(response_, Response()));
    this->StartRead(&response_);
  }
  void OnWriteDone(bool ok) final { Do(outgoing_.OnWritten(ok)); }
  void OnDone(const grpc::Status& status) final {
    const std::shared_ptr<ClientBidiStream> keep = std::move(self_);
    OnEnd(FromGrpcStatus(status));
  }

  grpc::ClientContext context_;
  Queue outgoing_;
  Response response_;
  std::shared_ptr<ClientBidiStream> self_;  // gRPC's share
};

}  // namespace crossmesh
