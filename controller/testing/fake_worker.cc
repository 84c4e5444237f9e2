#include "controller/testing/fake_worker.h"

#include "common/base/check.h"
#include "common/base/thread.h"
#include "common/rpc/channel.h"
#include "common/rpc/client_stream.h"
#include "common/rpc/server_streams.h"
#include "common/wire/communicator_codec.h"
#include "common/wire/session_protocol.h"
#include "common/wire/worker_part_codec.h"

#include <deque>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

// One Execute call.
class FakeWorker::Call final : public ServerBidiStream<v1::ExecuteRequest, v1::ExecuteResponse>,
                               public std::enable_shared_from_this<FakeWorker::Call> {
 public:
  explicit Call(FakeWorker& worker) : worker_(worker) {}

  // All destination devices are done, and so is the task.
  void Finish() {
    for (const DeviceRank device : part_->spec().devices) {
      if (part_->tensors().replica_of(device) < 0) continue;
      v1::ExecuteResponse response;
      response.mutable_device_done()->set_device(device);
      Send(std::move(response));
    }
    Report(absl::OkStatus());
  }

 private:
  void OnMessage(v1::ExecuteRequest request) override {
    switch (request.message_case()) {
      case v1::ExecuteRequest::kStart:
        return OnStart(request.start());
      case v1::ExecuteRequest::kAdopt:
        return OnAdopt(request.adopt());
      case v1::ExecuteRequest::kPiece:
        return OnPiece(request.piece());
      case v1::ExecuteRequest::kCancel:
        Count(&Counts::cancels);
        return Report(absl::CancelledError(request.cancel().reason()));
      case v1::ExecuteRequest::kResolve:
        return OnResolve(request.resolve());
      case v1::ExecuteRequest::kAcknowledge:
        Count(&Counts::acknowledgements);
        return End(absl::OkStatus());
      case v1::ExecuteRequest::kPeerLost:
      case v1::ExecuteRequest::MESSAGE_NOT_SET:
        return;
    }
  }

  void OnStart(const v1::ExecuteRequest::Start& start) {
    Count(&Counts::calls);
    operation_ = start.operation();
    digest_ = start.part_digest();
    attempt_ = start.attempt();
    {
      const MutexLock lock(worker_.mutex_);
      worker_.last_start_ = start;
      const auto found = worker_.parts_.find(digest_);
      if (found != worker_.parts_.end()) part_ = found->second;
    }
    if (part_ != nullptr) return Run();
    v1::ExecuteResponse response;
    response.mutable_need_part();
    Send(std::move(response));
  }

  void OnAdopt(const v1::ExecuteRequest::Adopt& adopt) {
    Count(&Counts::adoptions);
    attempt_ = adopt.attempt();
    {
      const MutexLock lock(worker_.mutex_);
      const auto found = worker_.tasks_.find(adopt.operation());
      if (found != worker_.tasks_.end() && found->second == adopt.part_digest()) {
        part_ = worker_.parts_.at(found->second);
      }
    }
    if (part_ == nullptr) return End(absl::NotFoundError("expected a task to adopt, found none"));
    Run();
  }

  void OnPiece(const v1::Piece& piece) {
    bytes_ += piece.data();
    if (!piece.last()) return;
    v1::WorkerPart message;
    CHECK(message.ParseFromString(bytes_));
    absl::StatusOr<WorkerPart> part = FromProto(message);
    CHECK_OK(part);
    CHECK_EQ(part->digest().ToString(), digest_);
    part_ = std::make_shared<const WorkerPart>(*std::move(part));
    {
      const MutexLock lock(worker_.mutex_);
      ++worker_.counts_.parts;
      worker_.parts_[digest_] = part_;
    }
    Run();
  }

  void Run() {
    Manner manner;
    {
      const MutexLock lock(worker_.mutex_);
      manner = worker_.manner_;
    }
    if (manner == Manner::kRefusing) {
      return End(absl::FailedPreconditionError("storage t: not there"));
    }
    {
      const MutexLock lock(worker_.mutex_);
      if (operation_ != 0) worker_.tasks_[operation_] = digest_;
    }
    v1::ExecuteResponse response;
    response.mutable_accepted();
    Send(std::move(response));
    if (manner == Manner::kDiligent) return Finish();
    const MutexLock lock(worker_.mutex_);
    worker_.held_.push_back(shared_from_this());
    worker_.holding_.SignalAll();
  }

  void OnResolve(const v1::ExecuteRequest::Resolve& resolve) {
    Count(resolve.commit() ? &Counts::commits : &Counts::abandons);
    v1::ExecuteResponse response;
    *response.mutable_resolved()->mutable_devices() = resolve.devices();
    Send(std::move(response));
  }

  void Report(const absl::Status& status) {
    v1::ExecuteResponse response;
    response.mutable_report()->set_worker(worker_.options_.name);
    response.mutable_report()->set_attempt(attempt_);
    response.mutable_report()->set_code(static_cast<int>(status.code()));
    response.mutable_report()->set_message(std::string(status.message()));
    Send(std::move(response));
  }

  void Count(int Counts::* what) {
    const MutexLock lock(worker_.mutex_);
    ++(worker_.counts_.*what);
  }

  void OnMessagesEnd() override { End(absl::OkStatus()); }
  void OnEnd() override {}

  FakeWorker& worker_;
  uint64_t operation_ = 0;  // that it has started
  std::string digest_;
  uint32_t attempt_ = 0;
  std::string bytes_;
  std::shared_ptr<const WorkerPart> part_;
};

// The worker's end of its session, with a heartbeat every two seconds.
class FakeWorker::Session final
    : public ClientBidiStream<v1::WorkerSessionRequest, v1::WorkerSessionResponse> {
 public:
  absl::StatusOr<v1::WorkerSessionResponse> Read() {
    const MutexLock lock(mutex_);
    while (messages_.empty() && !ended_) changed_.Wait(mutex_);
    if (messages_.empty()) return status_;
    v1::WorkerSessionResponse message = std::move(messages_.front());
    messages_.pop_front();
    return message;
  }
  // What heartbeats say from now on.
  void BeatWith(v1::WorkerSessionRequest heartbeat) {
    const MutexLock lock(mutex_);
    heartbeat_ = std::move(heartbeat);
    if (!beats_.joinable()) beats_ = Thread("heartbeats", [this] { Beat(); });
  }
  void WaitUntilEnded() {
    {
      const MutexLock lock(mutex_);
      while (!ended_) changed_.Wait(mutex_);
    }
    beats_.Join();
  }

 private:
  void Beat() {
    const MutexLock lock(mutex_);
    while (!ended_) {
      if (over_.WaitFor(mutex_, absl::Seconds(2))) Send(heartbeat_);
    }
  }
  void OnMessage(v1::WorkerSessionResponse response) override {
    const MutexLock lock(mutex_);
    messages_.push_back(std::move(response));
    changed_.SignalAll();
  }
  void OnEnd(const absl::Status& status) override {
    const MutexLock lock(mutex_);
    ended_ = true;
    status_ = status.ok() ? absl::OutOfRangeError("the session ended") : status;
    changed_.SignalAll();
    over_.SignalAll();
  }

  Mutex mutex_;
  CondVar changed_;
  CondVar over_;
  std::deque<v1::WorkerSessionResponse> messages_ ABSL_GUARDED_BY(mutex_);
  v1::WorkerSessionRequest heartbeat_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  Thread beats_;
};

FakeWorker::FakeWorker(Options options)
    : options_(std::move(options)),
      address_(absl::StrCat("unix:", options_.folder, "/", options_.name, ".sock")),
      communicators_(options_.gpu) {
  absl::StatusOr<std::unique_ptr<RpcServer>> server = RpcServer::Start(
      {.addresses = {address_}, .services = {this, &probes_, &programs_, &communicators_}});
  CHECK_OK(server);
  server_ = *std::move(server);
  Rejoin();
}

FakeWorker::~FakeWorker() { Vanish(); }

v1::WorkerSessionRequest::Register FakeWorker::Registration() const {
  v1::WorkerSessionRequest::Register message;
  message.set_worker(options_.name);
  message.set_incarnation(1);
  message.set_devices(options_.devices);
  message.set_execution_address(address_);
  message.set_transport("inprocess");
  message.set_protocol(kSessionProtocols.newest);
  message.add_data_interfaces("eth0");
  if (const std::optional<RankName> process = communicators_.process()) {
    v1::Gpu& gpu = *message.add_gpus();
    gpu.set_device(options_.devices);
    *gpu.mutable_process() = ToProto(*process);
  }
  return message;
}

void FakeWorker::Rejoin() {
  const auto channel = BuildRpcChannel({.address = options_.controller, .session = true});
  CHECK_OK(channel);
  if (session_ != nullptr) {
    session_->CloseWrites();
    session_->WaitUntilEnded();
  }
  stub_ = v1::WorkerService::NewStub(*channel);
  session_ = std::make_shared<Session>();
  Session::Start(session_, [this](grpc::ClientContext* context, Session::Reactor* reactor) {
    stub_->async()->WorkerSession(context, reactor);
  });
  v1::WorkerSessionRequest request;
  *request.mutable_register_() = Registration();
  session_->Send(request);
  const auto registered = ReadSession();
  CHECK_OK(registered);
  CHECK(registered->has_registered());
  session_->BeatWith(Heartbeat());
}

v1::WorkerSessionRequest FakeWorker::Heartbeat() const {
  v1::WorkerSessionRequest request;
  request.mutable_heartbeat();
  if (const std::optional<RankName> process = communicators_.process()) {
    *request.mutable_heartbeat()->add_gpu_processes() = ToProto(*process);
  }
  return request;
}

absl::StatusOr<v1::WorkerSessionResponse> FakeWorker::ReadSession() { return session_->Read(); }

void FakeWorker::SendHeartbeat(const std::string& operation_id, int64_t moved_bytes) {
  v1::WorkerSessionRequest request;
  auto& task = *request.mutable_heartbeat()->add_tasks();
  task.set_operation_id(operation_id);
  task.set_attempt(1);
  task.set_moved_bytes(moved_bytes);
  session_->Send(request);
}

void FakeWorker::SendGpuHeartbeat() {
  session_->Send(Heartbeat());
  session_->BeatWith(Heartbeat());
}

v1::ExecuteRequest::Start FakeWorker::last_start() const {
  const MutexLock lock(mutex_);
  return last_start_;
}

void FakeWorker::SetManner(Manner manner) {
  const MutexLock lock(mutex_);
  manner_ = manner;
}

void FakeWorker::Release() {
  std::vector<std::shared_ptr<Call>> held;
  {
    const MutexLock lock(mutex_);
    held.swap(held_);
    manner_ = Manner::kDiligent;
  }
  for (const std::shared_ptr<Call>& call : held) call->Finish();
}

void FakeWorker::WaitUntilHolding(int tasks) {
  const MutexLock lock(mutex_);
  while (static_cast<int>(held_.size()) < tasks) holding_.Wait(mutex_);
}

void FakeWorker::Leave() {
  v1::WorkerSessionRequest request;
  request.mutable_leave();
  session_->Send(request);
  Vanish();
}

void FakeWorker::Vanish() {
  session_->CloseWrites();
  session_->WaitUntilEnded();
  server_->Shutdown(absl::ZeroDuration());
}

FakeWorker::Counts FakeWorker::counts() const {
  const MutexLock lock(mutex_);
  return counts_;
}

grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteResponse>* FakeWorker::Execute(
    grpc::CallbackServerContext* /*context*/) {
  return Call::Serve(std::make_shared<Call>(*this));
}

}  // namespace crossmesh
