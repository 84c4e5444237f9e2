#include "controller/service/session_table.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/metrics/controller_metrics.h"
#include "common/rpc/push_back.h"
#include "common/wire/time_codec.h"
#include "controller/dispatch/running_operation.h"
#include "controller/dispatch/running_table.h"
#include "controller/membership/worker_registry.h"
#include "controller/service/worker_messages.h"

#include <optional>
#include <utility>
#include <vector>

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

// One stream of one worker. gRPC's calls come one after the other, so what they alone use has no
// lock.
class SessionTable::Session final : public Stream,
                                    public std::enable_shared_from_this<SessionTable::Session> {
 public:
  explicit Session(SessionTable& table) : table_(table) {}

 private:
  const Options& options() const { return table_.options_; }

  void OnMessage(v1::WorkerSessionRequest request) override {
    switch (request.message_case()) {
      case v1::WorkerSessionRequest::kRegister:
        OnRegister(request.register_());
        return;
      case v1::WorkerSessionRequest::kHeartbeat:
        OnHeartbeat(request.heartbeat());
        return;
      case v1::WorkerSessionRequest::kLeave:
        left_ = true;
        End(absl::OkStatus());
        return;
      case v1::WorkerSessionRequest::MESSAGE_NOT_SET:
        return;  // of a newer worker
    }
  }

  void OnRegister(const v1::WorkerSessionRequest::Register& message) {
    absl::Status status = session_.has_value()
                              ? absl::FailedPreconditionError(absl::StrCat(
                                    "worker ", worker_, ": registered twice on one stream"))
                              : Register(message);
    options().metrics.WorkerRegistration(ResultOf(status));
    if (!status.ok()) End(std::move(status));
  }

  absl::Status Register(const v1::WorkerSessionRequest::Register& message) {
    ASSIGN_OR_RETURN(WorkerRecord record, RecordOf(message));
    ASSIGN_OR_RETURN(const int32_t protocol, ProtocolOf(message));
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
    Send(std::move(response));
    if (!message.draining()) RepeatDrain();
    return absl::OkStatus();
  }

  // The stream before may have broken before the worker heard it.
  void RepeatDrain() {
    const absl::StatusOr<WorkerRecord> record = options().registry.Get(worker_);
    if (!record.ok() || !record->drain_asked) return;
    v1::WorkerSessionResponse response;
    response.mutable_drain();
    Send(std::move(response));
  }

  // A worker that was away gives up what has ended meanwhile.
  void TellEnded(const v1::WorkerSessionRequest::Heartbeat& heartbeat) {
    if (heartbeat.held_operations().empty()) return;
    options().operations.FindEnded(
        {heartbeat.held_operations().begin(), heartbeat.held_operations().end()},
        [weak = weak_from_this()](const std::vector<std::string>& ended) {
          const std::shared_ptr<Session> self = weak.lock();
          if (self == nullptr) return;
          v1::WorkerSessionResponse response;
          response.mutable_operations_ended()->mutable_operations()->Assign(ended.begin(),
                                                                            ended.end());
          self->Send(std::move(response));
        });
  }

  void OnHeartbeat(const v1::WorkerSessionRequest::Heartbeat& heartbeat) {
    if (!session_.has_value()) {
      End(absl::FailedPreconditionError("expected a registration before heartbeats"));
      return;
    }
    const absl::StatusOr<WorkerRegistry::Heartbeat> beat = HeartbeatOf(worker_, heartbeat);
    if (!beat.ok()) {
      End(beat.status());
      return;
    }
    if (!options().registry.Beat(worker_, *session_, *beat)) {
      End(absl::AbortedError(absl::StrCat("worker ", worker_,
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
  void OnMessagesEnd() override { End(absl::OkStatus()); }

  void OnEnd() override {
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
      options().queue.PostAfter(kReturnTime, ended);
    }
  }

  SessionTable& table_;
  std::string worker_;
  std::optional<uint64_t> session_;
  std::optional<absl::Duration> last_beat_;
  bool left_ = false;
};

SessionTable::Stream::Reactor* SessionTable::Open() {
  return Stream::Serve(std::make_shared<Session>(*this));
}

absl::Status SessionTable::CheckAdmission(const WorkerRecord& worker) {
  // One that is there has its tasks, and would be lost if it had to wait.
  const absl::StatusOr<WorkerRecord> known = options_.registry.Get(worker.name);
  const bool is_there = known.ok() && known->state != WorkerState::kLost &&
                        known->incarnation == worker.incarnation &&
                        known->execution_address == worker.execution_address;
  if (is_there) return absl::OkStatus();
  std::optional<absl::Duration> wait;
  {
    const MutexLock lock(mutex_);
    wait = gate_.Admit(options_.clock.Monotonic());
  }
  if (!wait.has_value()) return absl::OkStatus();
  return PushBackError(absl::StrCat("worker ", worker.name, ": too many register at once"), *wait);
}

bool SessionTable::Enter(const std::string& worker, std::shared_ptr<Session> session) {
  std::shared_ptr<Session> superseded;
  int64_t sessions = 0;
  {
    const MutexLock lock(mutex_);
    if (!closed_.ok()) return false;
    superseded = std::exchange(sessions_[worker], std::move(session));
    sessions = static_cast<int64_t>(sessions_.size());
  }
  CountSessions(sessions);
  if (superseded != nullptr) {
    superseded->End(
        absl::AbortedError(absl::StrCat("worker ", worker, ": superseded by another session")));
  }
  return true;
}

void SessionTable::Leave(const std::string& worker, const Session& session) {
  std::shared_ptr<Session> left;  // goes away without the lock
  int64_t sessions = 0;
  {
    const MutexLock lock(mutex_);
    const auto found = sessions_.find(worker);
    if (found == sessions_.end() || found->second.get() != &session) return;
    left = std::move(found->second);
    sessions_.erase(found);
    sessions = static_cast<int64_t>(sessions_.size());
  }
  CountSessions(sessions);
}

bool SessionTable::IsClosed() {
  const MutexLock lock(mutex_);
  return !closed_.ok();
}

void SessionTable::CountSessions(int64_t sessions) { options_.metrics.SetWorkerSessions(sessions); }

std::shared_ptr<SessionTable::Session> SessionTable::Find(const std::string& worker) {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(worker);
  return found == sessions_.end() ? nullptr : found->second;
}

void SessionTable::TellToDrain(const std::string& worker) {
  const std::shared_ptr<Session> session = Find(worker);
  if (session == nullptr) return;
  v1::WorkerSessionResponse response;
  response.mutable_drain();
  session->Send(std::move(response));
}

bool SessionTable::TellToUndrain(const std::string& worker) {
  const std::shared_ptr<Session> session = Find(worker);
  if (session == nullptr) return false;
  v1::WorkerSessionResponse response;
  response.mutable_undrain();
  session->Send(std::move(response));
  return true;
}

void SessionTable::Evict(const std::string& worker) {
  const std::shared_ptr<Session> session = Find(worker);
  if (session == nullptr) return;
  session->End(absl::AbortedError(absl::StrCat("worker ", worker, ": it was evicted")));
}

void SessionTable::Close(const absl::Status& why) {
  absl::flat_hash_map<std::string, std::shared_ptr<Session>> sessions;
  {
    const MutexLock lock(mutex_);
    closed_ = why;
    sessions = sessions_;
  }
  for (const auto& [worker, session] : sessions) session->End(why);
}

}  // namespace crossmesh
