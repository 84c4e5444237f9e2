#include "controller/dispatch/task_connection.h"

#include "common/base/version.h"
#include "common/wire/status_code.h"
#include "common/wire/worker_part_codec.h"

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

// Of a task that another controller was to start and this one takes up: the worker that has none
// has begun nothing, and whoever asks again gets what was asked for.
absl::Status NothingToTakeUp() {
  return absl::UnavailableError(
      "expected a task to take up, found none: the controller that began the operation ended "
      "before this worker had its task, or this worker was started again since; ask again");
}

// What a worker's refusal of an adoption means.
absl::Status OfAdoption(const absl::Status& status) {
  if (absl::IsNotFound(status)) return NothingToTakeUp();
  // One of the release before knows no adoptions. It gives its task up as soon as it hears that the
  // operation has ended.
  if (!absl::IsInvalidArgument(status)) return status;
  return absl::FailedPreconditionError(absl::StrCat(
      "expected a worker whose tasks another controller may take up, as those of version ",
      Version(), " are, found one of an older release, which says: ", status.message(),
      "; upgrade the worker"));
}

v1::ExecuteRequest CancelOf(const std::string& reason) {
  v1::ExecuteRequest request;
  request.mutable_cancel()->set_reason(reason);
  return request;
}

v1::ExecuteRequest ResolveOf(const std::vector<DeviceRank>& devices, bool commit) {
  v1::ExecuteRequest request;
  request.mutable_resolve()->mutable_devices()->Assign(devices.begin(), devices.end());
  request.mutable_resolve()->set_commit(commit);
  return request;
}

v1::ExecuteRequest PeerLostOf(const std::string& worker, const std::string& reason) {
  v1::ExecuteRequest request;
  request.mutable_peer_lost()->set_worker(worker);
  request.mutable_peer_lost()->set_reason(reason);
  return request;
}

}  // namespace

WorkerCallStart<v1::ExecuteRequest> TaskConnection::FirstWords() const {
  WorkerCallStart<v1::ExecuteRequest> start{.address = options_.address,
                                            .time_max = options_.deadline + kCallGrace};
  if (options_.adopt.has_value()) {
    *start.start.mutable_adopt() = *options_.adopt;
    return start;
  }
  *start.start.mutable_start() = *options_.start;
  start.start.mutable_start()->set_part_digest(options_.part->digest().ToString());
  start.body = [part = options_.part] { return ToProto(*part).SerializeAsString(); };
  return start;
}

void TaskConnection::Call() {
  // The call keeps the connection, so that a last word still leaves when the operation is over.
  const auto is_current = [this, self = shared_from_this(), number = ++call_number_] {
    return call_number_ == number;
  };
  call_ = options_.gateway.Open(
      FirstWords(),
      OnQueue<v1::ExecuteResponse>(
          options_.queue, is_current,
          {.on_message = [this](v1::ExecuteResponse response) { OnMessage(std::move(response)); },
           .on_end = [this](const absl::Status& status) { OnCallEnded(status); }}));
}

void TaskConnection::OnMessage(v1::ExecuteResponse response) {
  broken_calls_ = 0;
  switch (response.message_case()) {
    case v1::ExecuteResponse::kAccepted:
      return OnAccepted();
    case v1::ExecuteResponse::kDeviceDone: {
      const v1::ExecuteResponse::DeviceDone& done = response.device_done();
      return Emit(
          DeviceDone{options_.worker, done.device(), StatusFromCode(done.code(), done.message())});
    }
    case v1::ExecuteResponse::kReport:
      return OnReport(std::move(*response.mutable_report()));
    case v1::ExecuteResponse::kResolved:
      return OnResolved(response.resolved());
    case v1::ExecuteResponse::kRefusedAsReceiver:
      as_receiver_ = true;
      return;
    case v1::ExecuteResponse::kNeedPart:  // answered by the gateway
    case v1::ExecuteResponse::MESSAGE_NOT_SET:
      return;
  }
}

void TaskConnection::Cancel(const std::string& reason) { Say(CancelOf(reason)); }

void TaskConnection::Resolve(const std::vector<DeviceRank>& devices, bool commit) {
  Say(ResolveOf(devices, commit));
}

void TaskConnection::PeerLost(const std::string& worker, const std::string& reason) {
  Say(PeerLostOf(worker, reason));
}

// Remembered also when there is a call: it may break before the worker has heard it.
void TaskConnection::Say(v1::ExecuteRequest request) {
  if (call_ != nullptr) call_->Send(request);
  said_.push_back(std::move(request));
}

void TaskConnection::Acknowledge() {
  if (std::exchange(acknowledged_, true)) return;
  if (call_ == nullptr) return;
  v1::ExecuteRequest last;
  last.mutable_acknowledge();
  call_->SendLast(std::move(last));
  acknowledge_timer_ = options_.queue.PostAfter(kAcknowledgeLimit, [connection = weak_from_this()] {
    if (const std::shared_ptr<TaskConnection> self = connection.lock()) self->call_ = nullptr;
  });
}

void TaskConnection::LetGo() {
  if (acknowledged_ || std::exchange(let_go_, true)) return;
  if (ended_) {
    FinishLettingGo();
  } else if (call_ != nullptr) {
    call_->Send(CancelOf("the operation went on without this task"));
  }
}

void TaskConnection::Leave() {
  let_go_ = true;
  call_ = nullptr;
}

void TaskConnection::FinishLettingGo() {
  if (call_ == nullptr) return;
  if (accepted_) call_->Send(ResolveOf(options_.destinations, false));
  Acknowledge();
}

void TaskConnection::OnAccepted() {
  accepted_ = true;
  Emit(TaskAccepted{options_.worker});
}

void TaskConnection::OnReport(v1::TaskReport report) {
  ended_ = true;
  report_ = std::move(report);
  // A task that was never accepted has no lease to resolve.
  if (!accepted_) Acknowledge();
  if (let_go_ && !acknowledged_) FinishLettingGo();
  Emit(TaskEnded{options_.worker,
                 StatusFromCode(report_->code(), report_->message()),
                 {report_->lost_peers().begin(), report_->lost_peers().end()}});
}

void TaskConnection::OnResolved(const v1::ExecuteResponse::Resolved& resolved) {
  std::vector<DeviceRank> devices(resolved.devices().begin(), resolved.devices().end());
  std::erase_if(said_, [&](const v1::ExecuteRequest& said) {
    return said.has_resolve() && std::ranges::equal(said.resolve().devices(), devices);
  });
  Emit(DevicesResolved{options_.worker, std::move(devices),
                       StatusFromCode(resolved.code(), resolved.message())});
}

void TaskConnection::OnCallEnded(const absl::Status& status) {
  call_ = nullptr;
  options_.queue.Cancel(acknowledge_timer_);
  if (acknowledged_ || let_go_) return;
  if (!accepted_ && IsRefusal(status)) {
    ended_ = true;
    Emit(TaskEnded{options_.worker,
                   options_.adopt.has_value() ? OfAdoption(status) : status,
                   {},
                   as_receiver_});
    return;
  }
  // The next controller has the task. What this one would tell others of it is not theirs to hear:
  // those that the next one has not reached yet would obey.
  if (accepted_ && absl::IsAborted(status)) {
    let_go_ = true;
    return;
  }
  // An accepted task to which no call can attach again counts as lost with its worker.
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
    for (const v1::ExecuteRequest& said : self->said_) self->call_->Send(said);
  });
}

}  // namespace crossmesh
