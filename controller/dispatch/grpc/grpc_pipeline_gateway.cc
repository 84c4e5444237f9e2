#include "controller/dispatch/grpc/grpc_pipeline_gateway.h"

#include "common/rpc/client_stream.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include <absl/status/statusor.h>

namespace crossmesh {
namespace {

constexpr size_t kPieceBytesMax = 512 << 10;

using Stream = ClientBidiStream<v1::RunProgramRequest, v1::RunProgramResponse>;

class GrpcProgramCall final : public ProgramCall {
 public:
  explicit GrpcProgramCall(std::shared_ptr<Stream> call) : call_(std::move(call)) {}
  ~GrpcProgramCall() override { call_->Cancel(); }

  void BeginIteration(int64_t iteration) override {
    v1::RunProgramRequest request;
    request.mutable_begin_iteration()->set_iteration(iteration);
    call_->Send(std::move(request));
  }
  void Stop(const std::string& reason) override {
    v1::RunProgramRequest request;
    request.mutable_stop()->set_reason(reason);
    call_->Send(std::move(request));
    call_->CloseWrites();
  }
  void Cancel() override { call_->Cancel(); }

 private:
  const std::shared_ptr<Stream> call_;
};

// A call that never was.
class NoCall final : public ProgramCall {
 public:
  void BeginIteration(int64_t /*iteration*/) override {}
  void Stop(const std::string& /*reason*/) override {}
  void Cancel() override {}
};

}  // namespace

// One RunProgram call. Shared by gRPC, the ProgramCall and the table.
class GrpcPipelineGateway::Call final
    : public Stream,
      public std::enable_shared_from_this<GrpcPipelineGateway::Call> {
 public:
  using Stub = v1::PipelineExecutionService::Stub;

  Call(OpenCalls<Call>& table, std::shared_ptr<Stub> stub, ProgramListener& listener)
      : table_(table), stub_(std::move(stub)), listener_(listener) {}

  Stub& stub() { return *stub_; }

 private:
  void OnMessage(v1::RunProgramResponse response) override {
    switch (response.message_case()) {
      case v1::RunProgramResponse::kAccepted:
        return listener_.OnAccepted();
      case v1::RunProgramResponse::kIterationReport:
        return listener_.OnReport(std::move(*response.mutable_iteration_report()));
      case v1::RunProgramResponse::MESSAGE_NOT_SET:
        return;  // of a newer worker
    }
  }

  void OnEnd(const absl::Status& status) override {
    listener_.OnCallEnded(status);
    table_.Leave(shared_from_this());
  }

  OpenCalls<Call>& table_;
  const std::shared_ptr<Stub> stub_;
  ProgramListener& listener_;
};

GrpcPipelineGateway::GrpcPipelineGateway(bool insecure)
    : stubs_(insecure), calls_(std::make_unique<OpenCalls<Call>>()) {}

GrpcPipelineGateway::~GrpcPipelineGateway() { Stop(); }

void GrpcPipelineGateway::Stop() { calls_->Stop(); }

std::unique_ptr<ProgramCall> GrpcPipelineGateway::RunProgram(
    const std::string& worker_address, const v1::RunProgramRequest::Start& start,
    std::shared_ptr<const std::string> program, ProgramListener& listener) {
  absl::StatusOr<std::shared_ptr<Call::Stub>> stub = stubs_.StubFor(worker_address);
  if (!stub.ok()) {
    listener.OnCallEnded(stub.status());
    return std::make_unique<NoCall>();
  }
  auto call = std::make_shared<Call>(*calls_, *std::move(stub), listener);
  if (!calls_->Enter(call)) {
    listener.OnCallEnded(absl::UnavailableError("the controller is stopping"));
    return std::make_unique<NoCall>();
  }
  Call::Start(call, [&](grpc::ClientContext* context, Call::Reactor* reactor) {
    call->stub().async()->RunProgram(context, reactor);
  });
  v1::RunProgramRequest first;
  *first.mutable_start() = start;
  call->Send(std::move(first));
  for (size_t begin = 0; begin < program->size(); begin += kPieceBytesMax) {
    v1::RunProgramRequest request;
    v1::RunProgramRequest::ProgramPiece& piece = *request.mutable_program_piece();
    piece.set_data(program->substr(begin, kPieceBytesMax));
    piece.set_last(begin + kPieceBytesMax >= program->size());
    call->Send(std::move(request));
  }
  return std::make_unique<GrpcProgramCall>(std::move(call));
}

}  // namespace crossmesh
