#include "controller/service/worker_session.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/metrics/controller_metrics.h"
#include "common/wire/time_codec.h"
#include "controller/dispatch/running_operation.h"
#include "controller/dispatch/running_table.h"
#include "controller/dispatch/task_queue.h"
#include "controller/membership/worker_registry.h"
#include "controller/service/worker_messages.h"

#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

RegistrationResult ResultOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return RegistrationResult::kAccepted;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return RegistrationResult::kRejectedDuplicate;
    case absl::StatusCode::kFailedPrecondition:
      return RegistrationResult::kRejectedVersion;
    case absl::StatusCode::kUnavailable:
      return RegistrationResult::kThrottled;
    default:
      return RegistrationResult::kRejectedIdentity;
  }
}

}  // namespace

void WorkerSession::OnRequest(const v1::WorkerSessionRequest& request) {
  switch (request.message_case()) {
    case v1::WorkerSessionRequest::kRegister:
      OnRegister(request.register_());
      return;
    case v1::WorkerSessionRequest::kHeartbeat:
      OnHeartbeat(request.heartbeat());
      return;
    case v1::WorkerSessionRequest::kLeave:
      left_ = true;
      Finish(absl::OkStatus());
      return;
    case v1::WorkerSessionRequest::MESSAGE_NOT_SET:
      return;  // of a newer worker
  }
}

void WorkerSession::OnRegister(const v1::WorkerSessionRequest::Register& message) {
  absl::Status status = session_.has_value()
                            ? absl::FailedPreconditionError(absl::StrCat(
                                  "worker ", worker_, ": registered twice on one stream"))
                            : Register(message);
  options().metrics.WorkerRegistration(ResultOf(status));
  if (!status.ok()) Finish(std::move(status));
}

absl::Status WorkerSession::Register(const v1::WorkerSessionRequest::Register& message) {
  ASSIGN_OR_RETURN(WorkerRecord record, RecordOf(message));
  ASSIGN_OR_RETURN(record.protocol, ProtocolOf(message));
  const int32_t protocol = record.protocol;
  const std::string& devices = message.devices();
  RETURN_IF_ERROR(table_.CheckAdmission(record));
  // The registry first: it may refuse, and then the session before goes on.
  ASSIGN_OR_RETURN(const uint64_t session, options().registry.Register(std::move(record)));
  worker_ = message.worker();
  session_ = session;
  if (!table_.Enter(worker_, shared_from_this())) {
    return absl::UnavailableError("the controller is stopping");
  }
  LogInfo("worker_registered", {{"worker_id", worker_}, {"devices", devices}});
  v1::WorkerSessionResponse response;
  response.mutable_registered()->set_epoch(options().epoch);
  response.mutable_registered()->set_protocol(protocol);
  *response.mutable_registered()->mutable_heartbeat_interval() =
      ToProto(WorkerRegistry::kHeartbeatInterval);
  Tell(std::move(response));
  if (!message.draining()) RepeatDrain();
  return absl::OkStatus();
}

// The stream before may have broken before the worker heard it.
void WorkerSession::RepeatDrain() {
  const absl::StatusOr<WorkerRecord> record = options().registry.Get(worker_);
  if (!record.ok() || !record->drain_asked) return;
  v1::WorkerSessionResponse response;
  response.mutable_drain();
  Tell(std::move(response));
}

// A worker that was away gives up what has ended meanwhile.
void WorkerSession::TellEnded(const v1::WorkerSessionRequest::Heartbeat& heartbeat) {
  if (heartbeat.held_operations().empty()) return;
  options().operations.FindEnded(
      {heartbeat.held_operations().begin(), heartbeat.held_operations().end()},
      [weak = weak_from_this()](const std::vector<std::string>& ended) {
        const std::shared_ptr<WorkerSession> self = weak.lock();
        if (self == nullptr) return;
        v1::WorkerSessionResponse response;
        response.mutable_operations_ended()->mutable_operations()->Assign(ended.begin(),
                                                                          ended.end());
        self->Tell(std::move(response));
      });
}

void WorkerSession::OnHeartbeat(const v1::WorkerSessionRequest::Heartbeat& heartbeat) {
  if (!session_.has_value()) {
    Finish(absl::FailedPreconditionError("expected a registration before heartbeats"));
    return;
  }
  const absl::StatusOr<WorkerRegistry::Heartbeat> beat = HeartbeatOf(worker_, heartbeat);
  if (!beat.ok()) {
    Finish(beat.status());
    return;
  }
  if (!options().registry.Beat(worker_, *session_, *beat)) {
    Finish(absl::AbortedError(absl::StrCat("worker ", worker_,
                                           ": this session is over: the worker was lost, or has "
                                           "another session")));
    return;
  }
  const absl::Duration now = options().clock.Monotonic();
  if (last_beat_.has_value()) options().metrics.Heartbeat(now - *last_beat_);
  last_beat_ = now;
  TellEnded(heartbeat);
  for (const v1::WorkerSessionRequest::TaskProgress& task : heartbeat.tasks()) {
    options().operations.With(task.operation_id(),
                              [worker = worker_, task](RunningOperation& operation) {
                                operation.Progress(worker, task.attempt(), task.moved_bytes());
                              });
  }
}

// A worker that sends nothing more beats no more.
void WorkerSession::OnRequestsEnd() { Finish(absl::OkStatus()); }

void WorkerSession::OnOver() {
  if (!session_.has_value()) return;
  table_.Leave(worker_, *this);
  options().registry.StreamEnded(worker_, *session_);
  const auto ended = [&registry = options().registry, worker = worker_, session = *session_,
                      left = left_] { registry.SessionEnded(worker, session, left); };
  if (left_) {
    ended();
  } else if (!table_.IsClosed()) {  // else its worker goes on, for the next controller
    // Of a worker that has come back by then the registry ignores this: the session is an old
    // one.
    options().queue.PostAfter(SessionTable::kReturnTime, ended);
  }
}

}  // namespace crossmesh
