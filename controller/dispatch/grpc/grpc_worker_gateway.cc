#include "controller/dispatch/grpc/grpc_worker_gateway.h"

#include "common/rpc/client_stream.h"
#include "crossmesh/v1/execution_service.grpc.pb.h"
#include "crossmesh/v1/pipeline_execution_service.grpc.pb.h"

#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <grpc/support/time.h>

namespace crossmesh {
namespace {

constexpr size_t kPieceBytesMax = 512 << 10;

// What differs between the kinds of calls: the method, and whether the worker asks for the body.
template <typename Request>
struct KindOf;

template <>
struct KindOf<v1::ExecuteRequest> {
  using Service = v1::ExecutionService;
  template <typename Reactor>
  static void Start(Service::Stub& stub, grpc::ClientContext* context, Reactor* reactor) {
    stub.async()->Execute(context, reactor);
  }
  static bool AsksForBody(const v1::ExecuteResponse& response) { return response.has_need_part(); }
  static constexpr bool kBodyAtOnce = false;
};

template <>
struct KindOf<v1::RunProgramRequest> {
  using Service = v1::PipelineExecutionService;
  template <typename Reactor>
  static void Start(Service::Stub& stub, grpc::ClientContext* context, Reactor* reactor) {
    stub.async()->RunProgram(context, reactor);
  }
  static bool AsksForBody(const v1::RunProgramResponse& /*response*/) { return false; }
  static constexpr bool kBodyAtOnce = true;
};

// A call that never was.
template <typename Request>
class NoCall final : public WorkerCall<Request> {
 public:
  void Send(Request /*request*/) override {}
  void SendLast(Request /*request*/) override {}
  void Cancel() override {}
};

// The owner's end of a call.
template <typename Request, typename Stream>
class GrpcWorkerCall final : public WorkerCall<Request> {
 public:
  explicit GrpcWorkerCall(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}
  ~GrpcWorkerCall() override { stream_->Cancel(); }

  void Send(Request request) override { stream_->Send(std::move(request)); }
  void SendLast(Request request) override {
    stream_->Send(std::move(request));
    stream_->CloseWrites();
  }
  void Cancel() override { stream_->Cancel(); }

 private:
  const std::shared_ptr<Stream> stream_;
};

}  // namespace

// Shared by gRPC, the owner's end and the table of open calls.
template <typename Request, typename Response>
class GrpcWorkerGateway<Request, Response>::Call final
    : public ClientBidiStream<Request, Response> {
 public:
  using Kind = KindOf<Request>;
  using Reactor = typename ClientBidiStream<Request, Response>::Reactor;

  Call(OpenCalls& open, const std::shared_ptr<grpc::Channel>& channel,
       std::function<std::string()> body, WorkerCallListener<Response> listener)
      : open_(open),
        stub_(Kind::Service::NewStub(channel)),
        body_(std::move(body)),
        listener_(std::move(listener)) {}

  void Invoke(grpc::ClientContext* context, Reactor* reactor) {
    Kind::Start(*stub_, context, reactor);
  }

  void SendBody() {
    const std::string bytes = body_();
    for (size_t begin = 0; begin < bytes.size(); begin += kPieceBytesMax) {
      Request request;
      request.mutable_piece()->set_data(bytes.substr(begin, kPieceBytesMax));
      request.mutable_piece()->set_last(begin + kPieceBytesMax >= bytes.size());
      this->Send(std::move(request));
    }
  }

 private:
  // The body is sent from here, by gRPC's thread: to serialize a large part takes milliseconds,
  // which the queue of all runs does not have.
  void OnMessage(Response response) override {
    if (Kind::AsksForBody(response)) return SendBody();
    listener_.on_message(std::move(response));
  }
  // The listener goes away here: it may own the owner's end, which keeps this.
  void OnEnd(const absl::Status& status) override {
    std::exchange(listener_, {}).on_end(status);
    open_.Leave(this);
  }

  OpenCalls& open_;
  const std::unique_ptr<typename Kind::Service::Stub> stub_;
  const std::function<std::string()> body_;
  WorkerCallListener<Response> listener_;
};

template <typename Request, typename Response>
std::unique_ptr<WorkerCall<Request>> GrpcWorkerGateway<Request, Response>::Open(
    WorkerCallStart<Request> start, WorkerCallListener<Response> listener) {
  const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = channels_.ChannelTo(start.address);
  if (!channel.ok()) {
    listener.on_end(channel.status());
    return std::make_unique<NoCall<Request>>();
  }
  const auto call = std::make_shared<Call>(open_, *channel, std::move(start.body), listener);
  if (!open_.Enter(call.get(), [call] { call->Cancel(); })) {
    listener.on_end(absl::UnavailableError("the controller is stopping"));
    return std::make_unique<NoCall<Request>>();
  }
  Call::Start(call, [&](grpc::ClientContext* context, typename Call::Reactor* reactor) {
    // A span, not a point of time: a jump of the wall clock changes nothing.
    if (start.time_max < absl::InfiniteDuration()) {
      context->set_deadline(
          gpr_time_from_millis(absl::ToInt64Milliseconds(start.time_max), GPR_TIMESPAN));
    }
    call->Invoke(context, reactor);
  });
  call->Send(std::move(start.start));
  if (Call::Kind::kBodyAtOnce) call->SendBody();
  return std::make_unique<GrpcWorkerCall<Request, Call>>(call);
}

template class GrpcWorkerGateway<v1::ExecuteRequest, v1::ExecuteResponse>;
template class GrpcWorkerGateway<v1::RunProgramRequest, v1::RunProgramResponse>;

}  // namespace crossmesh
