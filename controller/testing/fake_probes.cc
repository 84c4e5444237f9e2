#include "controller/testing/fake_probes.h"

#include "common/rpc/status_codec.h"

#include <utility>

namespace crossmesh {

void FakeProbes::SetResult(absl::Status status, int64_t bytes_per_second,
                           absl::Duration round_trip) {
  const MutexLock lock(mutex_);
  status_ = std::move(status);
  result_.set_received_bytes(1000);
  result_.set_bytes_per_second(bytes_per_second);
  result_.set_round_trip_ns(absl::ToInt64Nanoseconds(round_trip));
}

void FakeProbes::Hold() {
  const MutexLock lock(mutex_);
  holding_ = true;
}

void FakeProbes::Release() {
  std::vector<grpc::ServerUnaryReactor*> held;
  {
    const MutexLock lock(mutex_);
    holding_ = false;
    held.swap(held_);
  }
  for (grpc::ServerUnaryReactor* reactor : held) reactor->Finish(grpc::Status());
}

void FakeProbes::WaitUntilHolding() {
  const MutexLock lock(mutex_);
  while (held_.empty()) changed_.Wait(mutex_);
}

grpc::ServerUnaryReactor* FakeProbes::OpenProbe(grpc::CallbackServerContext* context,
                                                const v1::OpenProbeRequest* request,
                                                v1::OpenProbeResponse* response) {
  response->set_ip(request->token());
  response->set_port(1);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status());
  return reactor;
}

grpc::ServerUnaryReactor* FakeProbes::RunProbe(grpc::CallbackServerContext* context,
                                               const v1::RunProbeRequest* /*request*/,
                                               v1::RunProbeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::Status status;
  {
    const MutexLock lock(mutex_);
    status = status_;
    *response = result_;
    if (holding_) {
      held_.push_back(reactor);
      changed_.SignalAll();
      return reactor;
    }
  }
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace crossmesh
