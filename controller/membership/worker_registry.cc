#include "controller/membership/worker_registry.h"

#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

bool IsLive(WorkerState state) { return state != WorkerState::kLost; }

absl::Status CheckRecord(const WorkerRecord& record) {
  if (record.name.empty()) return absl::InvalidArgumentError("a worker without a name");
  if (record.devices.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", record.name, ": expected at least one device, found none"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view WorkerStateName(WorkerState state) {
  switch (state) {
    case WorkerState::kReady:
      return "READY";
    case WorkerState::kSuspect:
      return "SUSPECT";
    case WorkerState::kDraining:
      return "DRAINING";
    case WorkerState::kLost:
      return "LOST";
  }
  return "UNKNOWN";
}

WorkerRegistry::WorkerRegistry(Options options, const Clock& clock, MembershipListener& listener)
    : options_(options), clock_(clock), listener_(listener) {}

absl::Status WorkerRegistry::CheckDevicesAreFree(const WorkerRecord& record) const {
  for (const DeviceId& device : record.devices) {
    const auto owner = owner_.find(device);
    if (owner == owner_.end() || owner->second == record.name) continue;
    return absl::AlreadyExistsError(absl::StrCat("worker ", record.name, ": device ",
                                                 ToString(device), " belongs to worker ",
                                                 owner->second));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> WorkerRegistry::Register(WorkerRecord record) {
  if (absl::Status status = CheckRecord(record); !status.ok()) return status;
  std::optional<WorkerRecord> superseded;
  uint64_t session = 0;
  {
    const MutexLock lock(mutex_);
    if (absl::Status status = CheckDevicesAreFree(record); !status.ok()) return status;
    const auto found = workers_.find(record.name);
    if (found != workers_.end()) {
      const WorkerRecord& old = found->second.record;
      if (old.incarnation > record.incarnation) {
        return absl::AbortedError(absl::StrFormat("worker %s: incarnation %d is older than %d",
                                                  record.name, record.incarnation,
                                                  old.incarnation));
      }
      if (IsLive(old.state) && old.incarnation != record.incarnation) superseded = old;
      for (const DeviceId& device : old.devices) owner_.erase(device);
    }
    record.state = WorkerState::kReady;
    record.last_heartbeat = clock_.Now();
    record.last_heartbeat_monotonic = clock_.Monotonic();
    for (const DeviceId& device : record.devices) owner_[device] = record.name;
    session = ++last_session_;
    workers_[record.name] = Member{record, session};
  }
  if (superseded.has_value()) {
    listener_.OnWorkerLost(*superseded, absl::UnavailableError("superseded by a new process"));
  }
  listener_.OnWorkerReady(record);
  return session;
}

WorkerRegistry::Member* WorkerRegistry::FindSession(absl::string_view worker, uint64_t session) {
  const auto found = workers_.find(worker);
  if (found == workers_.end() || found->second.session != session) return nullptr;
  return IsLive(found->second.record.state) ? &found->second : nullptr;
}

bool WorkerRegistry::Beat(absl::string_view worker, uint64_t session, const Heartbeat& heartbeat) {
  const MutexLock lock(mutex_);
  Member* member = FindSession(worker, session);
  if (member == nullptr) return false;
  WorkerRecord& record = member->record;
  record.last_heartbeat = clock_.Now();
  record.last_heartbeat_monotonic = clock_.Monotonic();
  record.memory_bytes = heartbeat.memory_bytes;
  record.running_tasks = heartbeat.running_tasks;
  if (record.state == WorkerState::kSuspect) record.state = WorkerState::kReady;
  return true;
}

void WorkerRegistry::SessionEnded(absl::string_view worker, uint64_t session, bool left) {
  WorkerRecord lost;
  {
    const MutexLock lock(mutex_);
    Member* member = FindSession(worker, session);
    if (member == nullptr) return;
    lost = Lose(*member);
    if (left) workers_.erase(lost.name);
  }
  listener_.OnWorkerLost(lost, absl::UnavailableError(left ? "it left" : "its session ended"));
}

WorkerRecord WorkerRegistry::Lose(Member& member) {
  member.record.state = WorkerState::kLost;
  for (const DeviceId& device : member.record.devices) owner_.erase(device);
  return member.record;
}

absl::Status WorkerRegistry::Drain(absl::string_view worker) {
  const MutexLock lock(mutex_);
  const auto found = workers_.find(worker);
  if (found == workers_.end() || !IsLive(found->second.record.state)) {
    return absl::NotFoundError(absl::StrCat("no live worker ", worker));
  }
  found->second.record.state = WorkerState::kDraining;
  return absl::OkStatus();
}

void WorkerRegistry::Sweep() {
  std::vector<WorkerRecord> lost;
  {
    const MutexLock lock(mutex_);
    const absl::Duration now = clock_.Monotonic();
    for (auto& [name, member] : workers_) {
      WorkerRecord& record = member.record;
      if (!IsLive(record.state)) continue;
      const absl::Duration silence = now - record.last_heartbeat_monotonic;
      if (silence >= options_.lost_after) {
        lost.push_back(Lose(member));
      } else if (record.state == WorkerState::kReady &&
                 silence > options_.heartbeat_interval * (options_.suspect_after_missed + 1)) {
        record.state = WorkerState::kSuspect;
      }
    }
  }
  for (const WorkerRecord& record : lost) {
    listener_.OnWorkerLost(
        record, absl::UnavailableError(
                    absl::StrCat("no heartbeat for ", absl::FormatDuration(options_.lost_after))));
  }
}

std::vector<WorkerRecord> WorkerRegistry::List() const {
  const MutexLock lock(mutex_);
  std::vector<WorkerRecord> records;
  for (const auto& [name, member] : workers_) records.push_back(member.record);
  return records;
}

absl::StatusOr<WorkerRecord> WorkerRegistry::Get(absl::string_view worker) const {
  const MutexLock lock(mutex_);
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return absl::NotFoundError(absl::StrCat("no worker ", worker));
  return found->second.record;
}

absl::StatusOr<std::vector<WorkerRecord>> WorkerRegistry::OwnersOf(
    std::span<const DeviceId> devices) const {
  const MutexLock lock(mutex_);
  absl::btree_map<std::string, const WorkerRecord*> owners;
  for (const DeviceId& device : devices) {
    const auto owner = owner_.find(device);
    if (owner == owner_.end()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "device ", ToString(device), ": expected a live worker that owns it, found none"));
    }
    const WorkerRecord& record = workers_.find(owner->second)->second.record;
    if (record.state == WorkerState::kDraining) {
      return absl::FailedPreconditionError(
          absl::StrCat("device ", ToString(device), ": its worker ", record.name, " is draining"));
    }
    owners.emplace(record.name, &record);
  }
  std::vector<WorkerRecord> records;
  for (const auto& [name, record] : owners) records.push_back(*record);
  return records;
}

}  // namespace crossmesh
