#include "controller/dispatch/grpc/grpc_worker_gateway.h"

#include "common/rpc/client_stream.h"
#include "common/wire/status_code.h"
#include "common/wire/worker_part_codec.h"
#include "controller/dispatch/grpc/execution_codec.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <grpc/support/time.h>

namespace crossmesh {
namespace {

constexpr size_t kPieceBytesMax = 512 << 10;
// Time past the task's deadline in which its last words can still be said.
constexpr absl::Duration kCallGrace = absl::Minutes(2);

class GrpcTaskCall final : public TaskCall {
 public:
  using Stream = ClientBidiStream<v1::ExecuteRequest, v1::ExecuteResponse>;

  explicit GrpcTaskCall(std::shared_ptr<Stream> call) : call_(std::move(call)) {}
  ~GrpcTaskCall() override { call_->Cancel(); }

  void Cancel(const std::string& reason) override {
    v1::ExecuteRequest request;
    request.mutable_cancel()->set_reason(reason);
    call_->Send(std::move(request));
  }
  void Resolve(const std::vector<DeviceRank>& devices, bool commit) override {
    v1::ExecuteRequest request;
    v1::ExecuteRequest::Resolve* resolve = request.mutable_resolve();
    resolve->mutable_devices()->Add(devices.begin(), devices.end());
    resolve->set_commit(commit);
    call_->Send(std::move(request));
  }
  void PeerLost(const std::string& worker, const std::string& reason) override {
    v1::ExecuteRequest request;
    request.mutable_peer_lost()->set_worker(worker);
    request.mutable_peer_lost()->set_reason(reason);
    call_->Send(std::move(request));
  }
  void Acknowledge() override {
    v1::ExecuteRequest request;
    request.mutable_acknowledge();
    call_->Send(std::move(request));
    call_->CloseWrites();
  }

 private:
  const std::shared_ptr<Stream> call_;
};

// A call that never was.
class NoCall final : public TaskCall {
 public:
  void Cancel(const std::string& /*reason*/) override {}
  void Resolve(const std::vector<DeviceRank>& /*devices*/, bool /*commit*/) override {}
  void PeerLost(const std::string& /*worker*/, const std::string& /*reason*/) override {}
  void Acknowledge() override {}
};

}  // namespace

// One Execute call. Shared by gRPC, the TaskCall and the table.
class GrpcWorkerGateway::Call final
    : public ClientBidiStream<v1::ExecuteRequest, v1::ExecuteResponse>,
      public std::enable_shared_from_this<GrpcWorkerGateway::Call> {
 public:
  using Stub = v1::ExecutionService::Stub;

  Call(OpenCalls<Call>& table, std::shared_ptr<Stub> stub, std::shared_ptr<const WorkerPart> part,
       TaskListener& listener)
      : table_(table), stub_(std::move(stub)), part_(std::move(part)), listener_(listener) {}

  Stub& stub() { return *stub_; }

 private:
  void OnMessage(v1::ExecuteResponse response) override {
    switch (response.message_case()) {
      case v1::ExecuteResponse::kNeedPart:
        SendPart();
        return;
      case v1::ExecuteResponse::kAccepted:
        listener_.OnAccepted();
        return;
      case v1::ExecuteResponse::kDeviceDone: {
        const v1::ExecuteResponse::DeviceDone& done = response.device_done();
        listener_.OnDeviceDone(done.device(), StatusFromCode(done.code(), done.message()));
        return;
      }
      case v1::ExecuteResponse::kReport:
        listener_.OnReport(OutcomeOf(response.report()));
        return;
      case v1::ExecuteResponse::kResolved: {
        const v1::ExecuteResponse::Resolved& resolved = response.resolved();
        listener_.OnResolved({resolved.devices().begin(), resolved.devices().end()},
                             StatusFromCode(resolved.code(), resolved.message()));
        return;
      }
      case v1::ExecuteResponse::MESSAGE_NOT_SET:
        return;  // of a newer worker
    }
  }

  void SendPart() {
    const std::string bytes = ToProto(*part_).SerializeAsString();
    for (size_t begin = 0; begin < bytes.size(); begin += kPieceBytesMax) {
      v1::ExecuteRequest request;
      v1::ExecuteRequest::PartPiece* piece = request.mutable_part_piece();
      piece->set_data(bytes.substr(begin, kPieceBytesMax));
      piece->set_last(begin + kPieceBytesMax >= bytes.size());
      Send(std::move(request));
    }
  }

  void OnEnd(const absl::Status& status) override {
    listener_.OnCallEnded(status);
    table_.Leave(shared_from_this());
  }

  OpenCalls<Call>& table_;
  const std::shared_ptr<Stub> stub_;
  const std::shared_ptr<const WorkerPart> part_;
  TaskListener& listener_;
};

GrpcWorkerGateway::GrpcWorkerGateway(bool insecure)
    : stubs_(insecure), calls_(std::make_unique<OpenCalls<Call>>()) {}

GrpcWorkerGateway::~GrpcWorkerGateway() { Stop(); }

void GrpcWorkerGateway::Stop() { calls_->Stop(); }

std::unique_ptr<TaskCall> GrpcWorkerGateway::Execute(const std::string& worker_address,
                                                     const TaskStart& start,
                                                     TaskListener& listener) {
  absl::StatusOr<std::shared_ptr<Call::Stub>> stub = stubs_.StubFor(worker_address);
  if (!stub.ok()) {
    listener.OnCallEnded(stub.status());
    return std::make_unique<NoCall>();
  }
  auto call = std::make_shared<Call>(*calls_, *std::move(stub), start.part, listener);
  if (!calls_->Enter(call)) {
    listener.OnCallEnded(absl::UnavailableError("the controller is stopping"));
    return std::make_unique<NoCall>();
  }
  Call::Start(call, [&](grpc::ClientContext* context, Call::Reactor* reactor) {
    // A span, not a point of time: a jump of the wall clock changes nothing.
    const absl::Duration time = std::min(start.deadline, absl::Hours(24)) + kCallGrace;
    context->set_deadline(gpr_time_from_millis(absl::ToInt64Milliseconds(time), GPR_TIMESPAN));
    call->stub().async()->Execute(context, reactor);
  });
  call->Send(StartRequest(start));
  return std::make_unique<GrpcTaskCall>(std::move(call));
}

}  // namespace crossmesh
