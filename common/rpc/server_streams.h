// The server's ends of streaming calls, over gRPC's callback API.
//
// A stream is shared by gRPC, until the call is over, and by its senders. So a sender may
// keep it as long as it likes: when the call is over, Send says so and does nothing else.
//
//   grpc::ServerWriteReactor<WatchOperationResponse>* WatchOperation(
//       grpc::CallbackServerContext*, const WatchOperationRequest* request) override {
//     auto watch = std::make_shared<OperationWatch>(registry_, request->id());
//     registry_.Watch(request->id(), watch);        // calls watch->Send from any thread
//     return OperationWatch::Serve(std::move(watch));
//   }
//
// Threads: what is virtual is called by gRPC's threads, one call after the other, and must not
// block; OnEnd comes last. Send and End may be called by any thread, also before Serve, and never
// block.

#pragma once

#include "common/rpc/outgoing_queue.h"
#include "common/rpc/status_codec.h"

#include <memory>
#include <utility>

#include <absl/status/status.h>
#include <grpcpp/support/server_callback.h>

namespace crossmesh {

// What all streams have in common that the server writes to. Thread-safe.
template <typename GrpcReactor, typename Response>
class ServerSendingStream : protected GrpcReactor {
 public:
  using Reactor = GrpcReactor;

  ServerSendingStream() = default;
  ~ServerSendingStream() override = default;
  ServerSendingStream(const ServerSendingStream&) = delete;
  ServerSendingStream& operator=(const ServerSendingStream&) = delete;

  // Gives the stream to gRPC; the result is what the handler returns.
  static Reactor* Serve(std::shared_ptr<ServerSendingStream> stream) {
    ServerSendingStream& served = *stream;
    served.self_ = std::move(stream);
    return &served;
  }

  // Queues a message. False when the call is ending or over, or ends now, with ResourceExhausted,
  // because OutgoingQueue::kMessagesMax messages wait for a slow reader.
  bool Send(Response response) {
    typename Queue::Action action;
    const bool taken = outgoing_.Push(std::move(response), action);
    Do(action);
    return taken;
  }

  // Ends the call after what is queued. Only the first End counts.
  void End(absl::Status status) { Do(outgoing_.Close(std::move(status))); }

 private:
  using Queue = OutgoingQueue<Response>;

  // The call is over: ended by us, or the client is gone.
  virtual void OnEnd() = 0;

  void Do(typename Queue::Action action) {
    if (action == Queue::Action::kWrite) this->StartWrite(&outgoing_.front());
    if (action == Queue::Action::kFinish) this->Finish(ToGrpcStatus(outgoing_.status()));
  }

  void OnWriteDone(bool ok) final { Do(outgoing_.OnWritten(ok)); }
  void OnCancel() final { Do(outgoing_.Abort(absl::CancelledError("the client is gone"))); }
  void OnDone() final {
    const std::shared_ptr<ServerSendingStream> keep = std::move(self_);
    OnEnd();
  }

  Queue outgoing_;
  std::shared_ptr<ServerSendingStream> self_;  // gRPC's share
};

// A server-streaming call. Thread-safe.
template <typename Response>
class ServerWriteStream : public ServerSendingStream<grpc::ServerWriteReactor<Response>, Response> {
};

// A bidirectional call. Thread-safe.
template <typename Request, typename Response>
class ServerBidiStream
    : public ServerSendingStream<grpc::ServerBidiReactor<Request, Response>, Response> {
 public:
  using Reactor = grpc::ServerBidiReactor<Request, Response>;

  // Gives the stream to gRPC and reads; the result is what the handler returns.
  static Reactor* Serve(std::shared_ptr<ServerBidiStream> stream) {
    ServerBidiStream& served = *stream;
    Reactor* const reactor = ServerSendingStream<Reactor, Response>::Serve(std::move(stream));
    served.StartRead(&served.request_);
    return reactor;
  }

 private:
  // The next message; the one after it is read when this returns.
  virtual void OnMessage(Request request) = 0;
  // The client sends nothing more, on purpose or because it is gone. The call goes on until End; of
  // a client that is gone it ends by itself.
  virtual void OnMessagesEnd() = 0;

  void OnReadDone(bool ok) final {
    if (!ok) {
      OnMessagesEnd();
      return;
    }
    OnMessage(std::exchange(request_, Request()));
    this->StartRead(&request_);
  }

  Request request_;
};

// A client-streaming call: many requests, one response. gRPC cannot tell a client that has sent all
// from one that died halfway, so the messages must: by a count, or a mark on the last. Confined to
// gRPC's calls, which come one after the other.
template <typename Request, typename Response>
class ServerReadStream : private grpc::ServerReadReactor<Request> {
 public:
  using Reactor = grpc::ServerReadReactor<Request>;

  ServerReadStream() = default;
  ~ServerReadStream() override = default;
  ServerReadStream(const ServerReadStream&) = delete;
  ServerReadStream& operator=(const ServerReadStream&) = delete;

  // Gives the stream to gRPC and reads; `response` is the handler's argument.
  static Reactor* Serve(std::unique_ptr<ServerReadStream> stream, Response* response) {
    ServerReadStream* served = stream.release();  // OnDone deletes it
    served->response_ = response;
    served->StartRead(&served->request_);
    return served;
  }

 private:
  // The next message. An error ends the call.
  virtual absl::Status OnMessage(Request request) = 0;
  // No more messages come; checks that these are all, and fills in the response.
  virtual absl::Status OnMessagesEnd(Response& response) = 0;

  void Finish(const absl::Status& status) { Reactor::Finish(ToGrpcStatus(status)); }
  void OnReadDone(bool ok) final {
    if (!ok) {
      Finish(OnMessagesEnd(*response_));
      return;
    }
    const absl::Status status = OnMessage(std::exchange(request_, Request()));
    if (status.ok()) {
      this->StartRead(&request_);
    } else {
      Finish(status);
    }
  }
  void OnDone() final { delete this; }

  Request request_;
  Response* response_ = nullptr;
};

}  // namespace crossmesh
