#include "worker/agent/testing/fake_controller.h"

#include "common/base/status_macros.h"
#include "common/wire/time_codec.h"

#include <utility>

namespace crossmesh {
namespace {

constexpr absl::Duration kWaitMax = absl::Seconds(20);
constexpr uint64_t kEpoch = 7;

}  // namespace

class FakeController::Session final
    : public ServerBidiStream<v1::WorkerSessionRequest, v1::WorkerSessionResponse>,
      public std::enable_shared_from_this<Session> {
 public:
  explicit Session(FakeController& controller) : controller_(controller) {}

 private:
  void OnMessage(v1::WorkerSessionRequest request) override {
    switch (request.message_case()) {
      case v1::WorkerSessionRequest::kRegister:
        OnRegister(request.register_());
        break;
      case v1::WorkerSessionRequest::kHeartbeat:
        controller_.OnHeartbeat(worker_, request.heartbeat());
        break;
      case v1::WorkerSessionRequest::kLeave:
        controller_.OnLeave(worker_);
        End(absl::OkStatus());
        break;
      case v1::WorkerSessionRequest::MESSAGE_NOT_SET:
        End(absl::InvalidArgumentError("an empty message"));
    }
  }
  void OnRegister(const v1::WorkerSessionRequest::Register& registration) {
    worker_ = registration.worker();
    if (const absl::Status status = controller_.OnRegister(shared_from_this(), registration);
        !status.ok()) {
      End(status);
      return;
    }
    v1::WorkerSessionResponse response;
    response.mutable_registered()->set_epoch(kEpoch);
    *response.mutable_registered()->mutable_heartbeat_interval() =
        ToProto(controller_.heartbeat_interval());
    Send(std::move(response));
  }
  void OnMessagesEnd() override { End(absl::OkStatus()); }
  void OnEnd() override { controller_.OnSessionEnd(worker_); }

  FakeController& controller_;
  std::string worker_;  // from its registration on
};

absl::StatusOr<std::unique_ptr<FakeController>> FakeController::Start(const std::string& address) {
  auto controller = std::make_unique<FakeController>();
  ASSIGN_OR_RETURN(controller->server_,
                   RpcServer::Start({.addresses = {address}, .services = {controller.get()}}));
  return controller;
}

FakeController::~FakeController() {
  if (server_ != nullptr) server_->Shutdown(absl::ZeroDuration());
}

grpc::ServerBidiReactor<v1::WorkerSessionRequest, v1::WorkerSessionResponse>*
FakeController::WorkerSession(grpc::CallbackServerContext* /*context*/) {
  return Session::Serve(std::make_shared<Session>(*this));
}

void FakeController::SetHeartbeatInterval(absl::Duration interval) {
  MutexLock lock(mutex_);
  heartbeat_interval_ = interval;
}

absl::Duration FakeController::heartbeat_interval() {
  MutexLock lock(mutex_);
  return heartbeat_interval_;
}

void FakeController::Refuse(absl::Status status) {
  MutexLock lock(mutex_);
  refusal_ = std::move(status);
}

void FakeController::SendDrain(const std::string& worker) {
  v1::WorkerSessionResponse response;
  response.mutable_drain();
  Find(worker)->Send(std::move(response));
}

void FakeController::SendUndrain(const std::string& worker) {
  v1::WorkerSessionResponse response;
  response.mutable_undrain();
  Find(worker)->Send(std::move(response));
}

void FakeController::SendOperationsEnded(const std::string& worker, const std::string& operation) {
  v1::WorkerSessionResponse response;
  response.mutable_operations_ended()->add_operations(operation);
  Find(worker)->Send(std::move(response));
}

void FakeController::EndSession(const std::string& worker, const absl::Status& status) {
  Find(worker)->End(status);
}

bool FakeController::WaitUntil(const std::string& worker,
                               const std::function<bool(const Seen&)>& wanted) {
  MutexLock lock(mutex_);
  while (!wanted(seen_[worker])) {
    if (changed_.WaitFor(mutex_, kWaitMax)) return wanted(seen_[worker]);
  }
  return true;
}

FakeController::Seen FakeController::seen(const std::string& worker) {
  MutexLock lock(mutex_);
  return seen_[worker];
}

absl::Status FakeController::OnRegister(const std::shared_ptr<Session>& session,
                                        const v1::WorkerSessionRequest::Register& registration) {
  MutexLock lock(mutex_);
  Seen& seen = seen_[registration.worker()];
  seen.registration = registration;
  ++seen.registrations;
  changed_.SignalAll();
  if (!refusal_.ok()) return refusal_;
  sessions_[registration.worker()] = session;
  return absl::OkStatus();
}

void FakeController::OnHeartbeat(const std::string& worker,
                                 const v1::WorkerSessionRequest::Heartbeat& heartbeat) {
  MutexLock lock(mutex_);
  ++seen_[worker].heartbeats;
  seen_[worker].heartbeat = heartbeat;
  changed_.SignalAll();
}

void FakeController::OnLeave(const std::string& worker) {
  MutexLock lock(mutex_);
  seen_[worker].left = true;
  changed_.SignalAll();
}

void FakeController::OnSessionEnd(const std::string& worker) {
  MutexLock lock(mutex_);
  ++seen_[worker].sessions_ended;
  changed_.SignalAll();
}

std::shared_ptr<FakeController::Session> FakeController::Find(const std::string& worker) {
  MutexLock lock(mutex_);
  return sessions_.at(worker);
}

}  // namespace crossmesh
