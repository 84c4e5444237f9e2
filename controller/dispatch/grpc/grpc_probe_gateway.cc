#include "controller/dispatch/grpc/grpc_probe_gateway.h"

#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status_codec.h"
#include "common/wire/time_codec.h"

#include <utility>

namespace crossmesh {
namespace {

constexpr absl::Duration kOpenTime = absl::Seconds(5);
// Beside the time that the probe takes: more than the worker gives itself.
constexpr absl::Duration kRunTime = absl::Seconds(8);

absl::Status Stopping() { return absl::UnavailableError("the controller is stopping"); }

}  // namespace

// What a call needs until it is over.
template <typename Request, typename Response>
struct GrpcProbeGateway::Call {
  std::shared_ptr<Stub> stub;
  const std::shared_ptr<grpc::ClientContext> context = std::make_shared<grpc::ClientContext>();
  Request request;
  Response response;
};

void GrpcProbeGateway::Open(const std::string& worker_address, const ProbeOpening& opening,
                            OnOpened on_opened) {
  absl::StatusOr<std::shared_ptr<Stub>> stub = StubFor(worker_address);
  if (!stub.ok()) return on_opened(stub.status());
  auto call = std::make_shared<Call<v1::OpenProbeRequest, v1::OpenProbeResponse>>();
  call->stub = *std::move(stub);
  call->request.set_interface(opening.interface);
  call->request.set_token(opening.token);
  *call->request.mutable_time() = ToProto(opening.time);
  if (!Enter(call->context)) return on_opened(Stopping());
  SetDeadline(*call->context, kOpenTime);
  call->stub->async()->OpenProbe(
      call->context.get(), &call->request, &call->response,
      [this, call,
       on_opened = std::make_shared<OnOpened>(std::move(on_opened))](const grpc::Status& status) {
        if (status.ok()) {
          (*on_opened)(ProbeEndpoint{.ip = call->response.ip(), .port = call->response.port()});
        } else {
          (*on_opened)(FromGrpcStatus(status));
        }
        Leave(call->context);
      });
}

void GrpcProbeGateway::Run(const std::string& worker_address, const ProbeRun& run,
                           OnResult on_result) {
  absl::StatusOr<std::shared_ptr<Stub>> stub = StubFor(worker_address);
  if (!stub.ok()) return on_result(stub.status());
  auto call = std::make_shared<Call<v1::RunProbeRequest, v1::RunProbeResponse>>();
  call->stub = *std::move(stub);
  call->request.set_interface(run.interface);
  call->request.set_ip(run.to.ip);
  call->request.set_port(run.to.port);
  call->request.set_token(run.token);
  *call->request.mutable_time() = ToProto(run.time);
  call->request.set_bytes(run.bytes);
  if (!Enter(call->context)) return on_result(Stopping());
  SetDeadline(*call->context, run.time + kRunTime);
  call->stub->async()->RunProbe(
      call->context.get(), &call->request, &call->response,
      [this, call,
       on_result = std::make_shared<OnResult>(std::move(on_result))](const grpc::Status& status) {
        if (status.ok()) {
          (*on_result)(ProbeResult{.received_bytes = call->response.received_bytes(),
                                   .bytes_per_second = call->response.bytes_per_second(),
                                   .round_trip_ns = call->response.round_trip_ns()});
        } else {
          (*on_result)(FromGrpcStatus(status));
        }
        Leave(call->context);
      });
}

bool GrpcProbeGateway::Enter(const std::shared_ptr<grpc::ClientContext>& context) {
  const MutexLock lock(mutex_);
  if (stopped_) return false;
  calls_.insert(context);
  return true;
}

void GrpcProbeGateway::Leave(const std::shared_ptr<grpc::ClientContext>& context) {
  const MutexLock lock(mutex_);
  calls_.erase(context);
  if (calls_.empty()) empty_.SignalAll();
}

void GrpcProbeGateway::Stop() {
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

absl::StatusOr<std::shared_ptr<GrpcProbeGateway::Stub>> GrpcProbeGateway::StubFor(
    const std::string& address) {
  {
    const MutexLock lock(mutex_);
    const auto found = stubs_.find(address);
    if (found != stubs_.end()) return found->second;
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                   BuildRpcChannel({.address = address, .insecure = insecure_}));
  std::shared_ptr<Stub> stub = v1::ProbeService::NewStub(channel);
  const MutexLock lock(mutex_);
  return stubs_.try_emplace(address, std::move(stub)).first->second;
}

}  // namespace crossmesh
