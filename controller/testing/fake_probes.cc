#include "controller/testing/fake_probes.h"

#include "controller/service/unary.h"

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
  return Answer(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* FakeProbes::RunProbe(grpc::CallbackServerContext* context,
                                               const v1::RunProbeRequest* /*request*/,
                                               v1::RunProbeResponse* response) {
  const MutexLock lock(mutex_);
  *response = result_;
  if (!holding_) return Answer(context, status_);
  held_.push_back(context->DefaultReactor());
  changed_.SignalAll();
  return held_.back();
}

}  // namespace crossmesh
