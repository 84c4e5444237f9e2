#include "controller/dispatch/task_connection.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Does the code say that the worker heard us and will not, rather than that the call broke?
bool IsRefusal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kInternal:  // a stream that was reset
    case absl::StatusCode::kUnavailable:
      return false;
    default:
      return true;
  }
}

}  // namespace

// Hears one call, and hands what it hears to the queue. Keeps itself and the connection until the
// call has ended, so that a last word still leaves when the operation is over.
class TaskConnection::Attachment : public TaskListener {
 public:
  static Attachment& Create(TaskQueue& queue, std::shared_ptr<TaskConnection> connection,
                            uint64_t call) {
    auto* attachment = new Attachment(queue, std::move(connection), call);
    attachment->self_.reset(attachment);
    return *attachment;
  }

  void OnAccepted() override {
    Post([](TaskConnection& c) { c.OnAccepted(); });
  }
  void OnDeviceDone(DeviceRank device, const absl::Status& status) override {
    Post([device, status](TaskConnection& c) {
      c.Emit(DeviceDone{c.options_.worker, device, status});
    });
  }
  void OnReport(const TaskOutcome& outcome) override {
    Post([outcome](TaskConnection& c) { c.OnReport(outcome); });
  }
  void OnResolved(const std::vector<DeviceRank>& devices, const absl::Status& status) override {
    Post([devices, status](TaskConnection& c) { c.OnResolved(devices, status); });
  }
  void OnCallEnded(const absl::Status& status) override {
    const std::unique_ptr<Attachment> keep = std::move(self_);
    queue_.Post([connection = connection_, call = call_, status] {
      if (connection->call_number_ == call) connection->OnCallEnded(status);
    });
  }

 private:
  Attachment(TaskQueue& queue, std::shared_ptr<TaskConnection> connection, uint64_t call)
      : queue_(queue), connection_(std::move(connection)), call_(call) {}

  template <typename Action>
  void Post(Action action) {
    queue_.Post([connection = connection_, call = call_, action = std::move(action)] {
      if (connection->call_number_ != call) return;
      connection->broken_calls_ = 0;
      action(*connection);
    });
  }

  TaskQueue& queue_;
  const std::shared_ptr<TaskConnection> connection_;
  const uint64_t call_;
  std::unique_ptr<Attachment> self_;
};

void TaskConnection::Call() {
  call_ = options_.gateway.Execute(
      options_.address, options_.start,
      Attachment::Create(options_.queue, shared_from_this(), ++call_number_));
}

void TaskConnection::Cancel(const std::string& reason) {
  cancelled_ = reason;
  if (call_ != nullptr) call_->Cancel(reason);
}

void TaskConnection::Resolve(const std::vector<DeviceRank>& devices, bool commit) {
  unanswered_.push_back({devices, commit});
  if (call_ != nullptr) call_->Resolve(devices, commit);
}

void TaskConnection::PeerLost(const std::string& worker, const std::string& reason) {
  lost_peers_.emplace_back(worker, reason);
  if (call_ != nullptr) call_->PeerLost(worker, reason);
}

void TaskConnection::Acknowledge() {
  if (std::exchange(acknowledged_, true)) return;
  if (call_ == nullptr) return;
  call_->Acknowledge();
  acknowledge_timer_ = options_.queue.PostAfter(kAcknowledgeLimit, [connection = weak_from_this()] {
    if (const std::shared_ptr<TaskConnection> self = connection.lock()) self->call_ = nullptr;
  });
}

void TaskConnection::LetGo() {
  if (acknowledged_ || std::exchange(let_go_, true)) return;
  if (ended_) {
    FinishLettingGo();
  } else if (call_ != nullptr) {
    call_->Cancel("the operation went on without this task");
  }
}

void TaskConnection::FinishLettingGo() {
  if (call_ == nullptr) return;
  if (accepted_) call_->Resolve(options_.destinations, false);
  Acknowledge();
}

void TaskConnection::OnAccepted() {
  accepted_ = true;
  Emit(TaskAccepted{options_.worker});
}

void TaskConnection::OnReport(const TaskOutcome& outcome) {
  ended_ = true;
  figures_ = outcome.figures;
  broken_devices_ = outcome.broken_devices;
  // A task that was never accepted has no lease to resolve.
  if (!accepted_) Acknowledge();
  if (let_go_ && !acknowledged_) FinishLettingGo();
  Emit(TaskEnded{options_.worker, outcome.status, outcome.lost_peers});
}

void TaskConnection::OnResolved(const std::vector<DeviceRank>& devices,
                                const absl::Status& status) {
  std::erase_if(unanswered_, [&](const Resolution& r) { return r.devices == devices; });
  Emit(DevicesResolved{options_.worker, devices, status});
}

void TaskConnection::OnCallEnded(const absl::Status& status) {
  call_ = nullptr;
  options_.queue.Cancel(acknowledge_timer_);
  if (acknowledged_ || let_go_) return;
  if (!accepted_ && IsRefusal(status)) {
    ended_ = true;
    Emit(TaskEnded{options_.worker, status, {}});
    return;
  }
  if (IsRefusal(status) || ++broken_calls_ >= kBrokenCallsMax) {
    let_go_ = true;
    Emit(WorkerLost{options_.worker,
                    absl::UnavailableError(
                        absl::StrCat("no answer at ", options_.address, ": ", status.message()))});
    return;
  }
  const absl::Duration pause =
      std::min(kPauseMax, kFirstPause * static_cast<double>(1 << (broken_calls_ - 1)));
  options_.queue.PostAfter(pause, [connection = weak_from_this()] {
    const std::shared_ptr<TaskConnection> self = connection.lock();
    if (self == nullptr || self->let_go_ || self->acknowledged_) return;
    self->Call();
    self->SayAgain();
  });
}

void TaskConnection::SayAgain() {
  if (cancelled_.has_value()) call_->Cancel(*cancelled_);
  for (const auto& [worker, reason] : lost_peers_) call_->PeerLost(worker, reason);
  for (const Resolution& r : unanswered_) call_->Resolve(r.devices, r.commit);
}

}  // namespace crossmesh
