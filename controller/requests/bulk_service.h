#pragma once

#include "common/base/status_macros.h"
#include "common/rpc/status_codec.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <google/protobuf/message.h>
#include <grpcpp/generic/async_generic_service.h>  // has the handlers
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

namespace crossmesh {

class RequestBudget;

// A request that may be large; with its last holder its share of the budget goes.
template <typename Message>
using BulkRequest = std::shared_ptr<const Message>;

// Takes a share that is large enough for the message, parses it, and frees the bytes. What it
// returns gives the share back when it goes away. As RequestBudget::Take and FootprintOf; then the
// message is not to be used.
absl::StatusOr<std::shared_ptr<void>> ReadWithin(RequestBudget& budget, grpc::ByteBuffer& bytes,
                                                 google::protobuf::Message& message);

// The place of a method in its service, by which gRPC knows it; both are there.
int IndexOfMethod(const std::string& service, const std::string& method);

template <typename Message>
absl::StatusOr<BulkRequest<Message>> ReadBulkRequest(RequestBudget& budget,
                                                     grpc::ByteBuffer& bytes) {
  struct Held {
    std::shared_ptr<void> share;
    Message message;
  };
  auto held = std::make_shared<Held>();
  ASSIGN_OR_RETURN(held->share, ReadWithin(budget, bytes, held->message));
  const Message* message = &held->message;
  return BulkRequest<Message>(std::move(held), message);
}

// A callback service, of which some methods have large requests: gRPC hands these over as bytes, so
// that they are parsed within a budget, and freed as soon as the handler has no use for them,
// rather than at the end of the call. `Api` is the class that is generated for the service. The
// handlers of these methods are given in the constructor; those of the others are overridden as
// usual.
template <typename Api>
class BulkService : public Api::CallbackService {
 protected:
  // The budget outlives the service.
  explicit BulkService(RequestBudget& budget) : budget_(budget) {}

  template <typename Request, typename Response>
  using Unary = std::function<grpc::ServerUnaryReactor*(grpc::CallbackServerContext*,
                                                        BulkRequest<Request>, Response*)>;
  template <typename Request, typename Response>
  void ServeUnary(const std::string& method, Unary<Request, Response> handler) {
    const auto serve = [this, handler = std::move(handler)](
                           grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes,
                           Response* response) -> grpc::ServerUnaryReactor* {
      absl::StatusOr<BulkRequest<Request>> request = Read<Request>(bytes);
      if (request.ok()) return handler(context, *std::move(request), response);
      grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
      reactor->Finish(ToGrpcStatus(request.status()));
      return reactor;
    };
    this->MarkMethodRawCallback(
        IndexOfMethod(Api::service_full_name(), method),
        new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, Response>(serve));
  }

  // Of one request and a stream of responses. The handler is told why there is no request.
  template <typename Request, typename Response>
  using ServerStream = std::function<grpc::ServerWriteReactor<Response>*(
      grpc::CallbackServerContext*, absl::StatusOr<BulkRequest<Request>>)>;
  template <typename Request, typename Response>
  void ServeServerStream(const std::string& method, ServerStream<Request, Response> handler) {
    const auto serve = [this, handler = std::move(handler)](grpc::CallbackServerContext* context,
                                                            const grpc::ByteBuffer* bytes) {
      return handler(context, Read<Request>(bytes));
    };
    this->MarkMethodRawCallback(
        IndexOfMethod(Api::service_full_name(), method),
        new grpc::internal::CallbackServerStreamingHandler<grpc::ByteBuffer, Response>(serve));
  }

  // Of a stream of requests, which the handler's reactor reads.
  template <typename Response>
  using ClientStream = std::function<grpc::ServerReadReactor<grpc::ByteBuffer>*(
      grpc::CallbackServerContext*, Response*)>;
  template <typename Response>
  void ServeClientStream(const std::string& method, ClientStream<Response> handler) {
    this->MarkMethodRawCallback(
        IndexOfMethod(Api::service_full_name(), method),
        new grpc::internal::CallbackClientStreamingHandler<grpc::ByteBuffer, Response>(
            std::move(handler)));
  }

  RequestBudget& budget() { return budget_; }

 private:
  template <typename Request>
  absl::StatusOr<BulkRequest<Request>> Read(const grpc::ByteBuffer* bytes) {
    // gRPC, whose handlers take them as const, would keep them until the call has ended.
    return ReadBulkRequest<Request>(budget_, const_cast<grpc::ByteBuffer&>(*bytes));
  }

  RequestBudget& budget_;
};

}  // namespace crossmesh
