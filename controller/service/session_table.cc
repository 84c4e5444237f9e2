#include "controller/service/session_table.h"

#include "common/base/clock.h"
#include "common/metrics/controller_metrics.h"
#include "common/rpc/push_back.h"
#include "controller/membership/worker_registry.h"
#include "controller/service/worker_session.h"

#include <optional>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
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

bool SessionTable::Enter(const std::string& worker, std::shared_ptr<WorkerSession> session) {
  std::shared_ptr<WorkerSession> superseded;
  int64_t sessions = 0;
  {
    const MutexLock lock(mutex_);
    if (!closed_.ok()) return false;
    superseded = std::exchange(sessions_[worker], std::move(session));
    sessions = static_cast<int64_t>(sessions_.size());
  }
  CountSessions(sessions);
  if (superseded != nullptr) {
    superseded->Finish(
        absl::AbortedError(absl::StrCat("worker ", worker, ": superseded by another session")));
  }
  return true;
}

void SessionTable::Leave(const std::string& worker, const WorkerSession& session) {
  std::shared_ptr<WorkerSession> left;  // goes away without the lock
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

std::shared_ptr<WorkerSession> SessionTable::Find(const std::string& worker) {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(worker);
  return found == sessions_.end() ? nullptr : found->second;
}

void SessionTable::TellToDrain(const std::string& worker) {
  const std::shared_ptr<WorkerSession> session = Find(worker);
  if (session == nullptr) return;
  v1::WorkerSessionResponse response;
  response.mutable_drain();
  session->Tell(std::move(response));
}

bool SessionTable::TellToUndrain(const std::string& worker) {
  const std::shared_ptr<WorkerSession> session = Find(worker);
  if (session == nullptr) return false;
  v1::WorkerSessionResponse response;
  response.mutable_undrain();
  session->Tell(std::move(response));
  return true;
}

void SessionTable::Evict(const std::string& worker) {
  const std::shared_ptr<WorkerSession> session = Find(worker);
  if (session == nullptr) return;
  session->Finish(absl::AbortedError(absl::StrCat("worker ", worker, ": it was evicted")));
}

void SessionTable::Close(const absl::Status& why) {
  absl::flat_hash_map<std::string, std::shared_ptr<WorkerSession>> sessions;
  {
    const MutexLock lock(mutex_);
    closed_ = why;
    sessions = sessions_;
  }
  for (const auto& [worker, session] : sessions) session->Finish(why);
}

}  // namespace crossmesh
