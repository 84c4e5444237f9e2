#include "controller/membership/worker_registry.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "controller/membership/failed_links.h"
#include "controller/membership/name_guard.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <absl/hash/hash.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

bool IsLive(WorkerState state) { return state != WorkerState::kLost; }

// The name may be anything that a client has asked for.
absl::Status NotFound(absl::string_view worker, absl::string_view expected) {
  return absl::NotFoundError(absl::StrCat("worker \"", absl::CHexEscape(worker), "\": expected ",
                                          expected, ", found none"));
}

absl::Status CheckGpus(const WorkerRecord& record) {
  std::set<DeviceId> devices;
  std::set<std::string> names;
  for (const GpuRecord& gpu : record.gpus) {
    if (std::ranges::find(record.devices, gpu.device) == record.devices.end()) {
      return absl::InvalidArgumentError(absl::StrCat("worker ", record.name, ": GPU ",
                                                     gpu.process.gpu, ": device ",
                                                     ToString(gpu.device), " is not the worker's"));
    }
    if (!devices.insert(gpu.device).second || !names.insert(gpu.process.gpu).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("worker ", record.name, ": expected each GPU and its device once, found ",
                       gpu.process.gpu, " as device ", ToString(gpu.device), " again"));
    }
  }
  return absl::OkStatus();
}

NameGuard::Process ProcessOf(const WorkerRecord& record) {
  return {record.incarnation, record.execution_address};
}

bool HasProcess(const WorkerRecord& worker, const RankName& process) {
  return std::ranges::find(worker.gpus, process, &GpuRecord::process) != worker.gpus.end();
}

absl::Status CheckRecord(const WorkerRecord& record) {
  if (record.name.empty()) return absl::InvalidArgumentError("a worker without a name");
  if (record.devices.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", record.name, ": expected at least one device, found none"));
  }
  return CheckGpus(record);
}

void SetProcesses(WorkerRecord& worker, std::span<const RankName> processes) {
  for (GpuRecord& gpu : worker.gpus) {
    const auto now = std::ranges::find(processes, gpu.process.gpu, &RankName::gpu);
    gpu.process.incarnation = now == processes.end() ? 0 : now->incarnation;
  }
}

// Of one that is heard.
WorkerState StateOf(const WorkerRecord& record) {
  return record.drain_asked || record.draining ? WorkerState::kDraining : WorkerState::kReady;
}

size_t HashOf(absl::string_view worker) { return absl::HashOf(worker); }

}  // namespace

absl::string_view WorkerStateName(WorkerState state) {
  // In the order of WorkerState.
  constexpr absl::string_view kNames[] = {"READY", "SUSPECT", "DRAINING", "LOST"};
  static_assert(std::size(kNames) == static_cast<size_t>(WorkerState::kLost) + 1);
  return kNames[static_cast<size_t>(state)];
}

WorkerRegistry::WorkerRegistry(Options options, const Clock& clock, MembershipListener& listener)
    : options_(options),
      clock_(clock),
      listener_(listener),
      names_(std::make_unique<NameGuard>()),
      links_(std::make_unique<FailedLinks>()) {}

WorkerRegistry::~WorkerRegistry() = default;

absl::Status WorkerRegistry::CheckDevicesAreFree(const WorkerRecord& record) const {
  for (const DeviceId& device : record.devices) {
    const auto owner = owner_.find(device);
    if (owner == owner_.end() || owner->second == record.name) continue;
    return absl::AlreadyExistsError(absl::StrCat("worker ", record.name, ": device ",
                                                 ToString(device), " belongs to worker ",
                                                 owner->second));
  }
  for (const GpuRecord& gpu : record.gpus) {
    const auto owner = gpu_owner_.find(gpu.process.gpu);
    if (owner == gpu_owner_.end() || owner->second == record.name) continue;
    return absl::AlreadyExistsError(absl::StrCat("worker ", record.name, ": GPU ", gpu.process.gpu,
                                                 " belongs to worker ", owner->second));
  }
  return absl::OkStatus();
}

absl::Status WorkerRegistry::CheckNameIsFree(const WorkerRecord& record) {
  const auto found = workers_.find(record.name);
  std::optional<NameGuard::Process> former;
  if (found != workers_.end()) {
    const Member& member = found->second;
    former = ProcessOf(member.record);
    if (IsLive(member.record.state) && member.stream_open && *former != ProcessOf(record)) {
      return absl::AlreadyExistsError(absl::StrFormat(
          "worker %s: expected a name that no other process has, found it in a session of "
          "incarnation %d at %s, which is open; this is incarnation %d at %s",
          record.name, former->incarnation, former->address, record.incarnation,
          record.execution_address));
    }
  }
  return names_->Admit(record.name, ProcessOf(record), former, clock_.Monotonic());
}

void WorkerRegistry::Own(const WorkerRecord& record) {
  for (const DeviceId& device : record.devices) owner_[device] = record.name;
  for (const GpuRecord& gpu : record.gpus) gpu_owner_[gpu.process.gpu] = record.name;
  if (record.m2n) m2n_workers_ ^= HashOf(record.name);
}

void WorkerRegistry::Disown(const WorkerRecord& record) {
  for (const DeviceId& device : record.devices) owner_.erase(device);
  for (const GpuRecord& gpu : record.gpus) gpu_owner_.erase(gpu.process.gpu);
  if (record.m2n) m2n_workers_ ^= HashOf(record.name);
}

void WorkerRegistry::SetM2n(WorkerRecord& record, bool m2n) {
  if (std::exchange(record.m2n, m2n) != m2n) m2n_workers_ ^= HashOf(record.name);
}

void WorkerRegistry::TellLost(const WorkerRecord& worker, const absl::Status& why) {
  listener_.OnWorkerLost(worker, why);
  for (const GpuRecord& gpu : worker.gpus) {
    if (!gpu.has_process()) continue;
    listener_.OnGpuProcessLost(gpu.process,
                               At(absl::StrCat("worker ", worker.name, " is lost"), why));
  }
}

void WorkerRegistry::TellReplaced(const WorkerRecord& before, const WorkerRecord& after) {
  for (const GpuRecord& gpu : before.gpus) {
    if (!gpu.has_process() || HasProcess(after, gpu.process)) continue;
    listener_.OnGpuProcessLost(
        gpu.process,
        absl::UnavailableError(absl::StrCat("worker ", before.name, ": the process has ended")));
  }
}

absl::StatusOr<uint64_t> WorkerRegistry::Register(WorkerRecord record) {
  if (absl::Status status = CheckRecord(record); !status.ok()) return status;
  std::optional<WorkerRecord> superseded;
  std::optional<WorkerRecord> before;  // the same process
  uint64_t session = 0;
  {
    const MutexLock lock(mutex_);
    if (absl::Status status = CheckDevicesAreFree(record); !status.ok()) return status;
    if (absl::Status status = CheckNameIsFree(record); !status.ok()) return status;
    const auto found = workers_.find(record.name);
    if (found != workers_.end()) {
      const WorkerRecord& old = found->second.record;
      const bool same = ProcessOf(old) == ProcessOf(record);
      record.drain_asked = same && old.drain_asked;
      if (IsLive(old.state)) {
        // The same process on another stream still has its tasks, and is not lost.
        (same ? before : superseded) = old;
        if (!same) links_->Forget(old.name);
        Disown(old);
      }
    }
    record.state = StateOf(record);
    record.last_heartbeat = clock_.Now();
    Own(record);
    session = ++last_session_;
    workers_[record.name] =
        Member{.record = record, .session = session, .looked = clock_.Monotonic()};
  }
  // The loss first: listeners then forget what they have of the worker, which must not be what they
  // make for the new process.
  if (superseded.has_value()) {
    TellLost(*superseded, absl::UnavailableError("superseded by a new process"));
  }
  if (before.has_value()) TellReplaced(*before, record);
  listener_.OnWorkerReady(record);
  return session;
}

WorkerRegistry::Member* WorkerRegistry::FindSession(absl::string_view worker, uint64_t session) {
  const auto found = workers_.find(worker);
  if (found == workers_.end() || found->second.session != session) return nullptr;
  return IsLive(found->second.record.state) ? &found->second : nullptr;
}

bool WorkerRegistry::Beat(absl::string_view worker, uint64_t session, const Heartbeat& heartbeat) {
  WorkerRecord before;
  WorkerRecord after;
  {
    const MutexLock lock(mutex_);
    Member* member = FindSession(worker, session);
    if (member == nullptr) return false;
    WorkerRecord& record = member->record;
    record.last_heartbeat = clock_.Now();
    member->silence = absl::ZeroDuration();
    member->looked = clock_.Monotonic();
    record.memory_bytes = heartbeat.memory_bytes;
    record.running_tasks = heartbeat.running_tasks;
    record.running_operations = heartbeat.running_operations;
    record.traffic = heartbeat.traffic;
    record.dirty_storages = heartbeat.dirty_storages;
    record.draining = heartbeat.draining;
    record.leaving = heartbeat.leaving;
    record.state = StateOf(record);
    if (record.gpus.empty()) return true;  // the copies below are for GPUs only
    before = record;
    SetProcesses(record, heartbeat.gpu_processes);
    SetM2n(record, heartbeat.m2n);
    after = record;
  }
  TellReplaced(before, after);
  return true;
}

void WorkerRegistry::StreamEnded(absl::string_view worker, uint64_t session) {
  const MutexLock lock(mutex_);
  Member* member = FindSession(worker, session);
  if (member != nullptr) member->stream_open = false;
}

void WorkerRegistry::SessionEnded(absl::string_view worker, uint64_t session, bool left) {
  WorkerRecord lost;
  {
    const MutexLock lock(mutex_);
    Member* member = FindSession(worker, session);
    if (member == nullptr) return;
    if (!left && clock_.Monotonic() < excused_until_) {
      member->stream_open = false;
      return;
    }
    lost = Lose(*member);
    // A worker that left on purpose is not listed as lost.
    if (left) {
      names_->Forget(lost.name);
      workers_.erase(lost.name);
    }
  }
  TellLost(lost, absl::UnavailableError(left ? "it left" : "its session ended"));
}

WorkerRecord WorkerRegistry::Lose(Member& member) {
  member.record.state = WorkerState::kLost;
  member.record.running_tasks = 0;
  member.record.running_operations.clear();
  member.record.dirty_storages.clear();
  links_->Forget(member.record.name);
  Disown(member.record);
  return member.record;
}

absl::StatusOr<WorkerRegistry::Member*> WorkerRegistry::FindLive(absl::string_view worker) {
  const auto found = workers_.find(worker);
  if (found != workers_.end() && IsLive(found->second.record.state)) return &found->second;
  const absl::Status none = NotFound(worker, "a live one");
  if (found != workers_.end() || clock_.Monotonic() >= returned_by_) return none;
  return absl::UnavailableError(absl::StrCat(none.message(), "; it may yet come back"));
}

absl::Status WorkerRegistry::Drain(absl::string_view worker) {
  const MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Member* const member, FindLive(worker));
  member->record.state = WorkerState::kDraining;
  member->record.drain_asked = true;
  return absl::OkStatus();
}

absl::Status WorkerRegistry::Undrain(absl::string_view worker) {
  const MutexLock lock(mutex_);
  ASSIGN_OR_RETURN(Member* const member, FindLive(worker));
  WorkerRecord& record = member->record;
  if (record.leaving) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", worker,
                     ": expected one that was asked to drain, found one that "
                     "leaves of its own"));
  }
  record.drain_asked = false;
  if (record.state == WorkerState::kDraining) record.state = StateOf(record);
  return absl::OkStatus();
}

absl::Status WorkerRegistry::Evict(absl::string_view worker) {
  WorkerRecord lost;
  {
    const MutexLock lock(mutex_);
    ASSIGN_OR_RETURN(Member* const member, FindLive(worker));
    lost = Lose(*member);
    names_->Evicted(lost.name, ProcessOf(lost));
  }
  TellLost(lost, absl::UnavailableError("it was evicted"));
  return absl::OkStatus();
}

absl::Status WorkerRegistry::Forget(absl::string_view worker) {
  const MutexLock lock(mutex_);
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return NotFound(worker, "one that is known");
  const WorkerState state = found->second.record.state;
  if (IsLive(state)) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", worker, ": expected it LOST, found ", WorkerStateName(state)));
  }
  names_->Forget(found->first);
  workers_.erase(found);
  return absl::OkStatus();
}

WorkerRecord WorkerRegistry::Described(const WorkerRecord& record) const {
  WorkerRecord described = record;
  described.problem = names_->WhyQuarantined(record.name, clock_.Monotonic()).value_or("");
  DescribeLinks(described);
  return described;
}

void WorkerRegistry::AwaitReturns(absl::Duration limit) {
  const MutexLock lock(mutex_);
  returned_by_ = clock_.Monotonic() + limit;
}

void WorkerRegistry::Sweep() {
  std::vector<WorkerRecord> lost;
  {
    const MutexLock lock(mutex_);
    const absl::Duration now = clock_.Monotonic();
    if (now - swept_.value_or(now) > 2 * kHeartbeatInterval) {
      excused_until_ = now + options_.lost_after;
    }
    swept_ = now;
    for (auto& [name, member] : workers_) {
      WorkerRecord& record = member.record;
      if (!IsLive(record.state)) continue;
      member.silence += std::min(now - member.looked, kHeartbeatInterval);
      member.looked = now;
      if (member.silence >= options_.lost_after) {
        record.silent = true;
        lost.push_back(Lose(member));
      } else if (record.state == WorkerState::kReady &&
                 member.silence > kHeartbeatInterval * (kSuspectAfterMissed + 1)) {
        record.state = WorkerState::kSuspect;
      }
    }
  }
  // Without the lock: listeners look into the registry.
  for (const WorkerRecord& record : lost) {
    TellLost(record, absl::UnavailableError(absl::StrCat(
                         "no heartbeat for ", absl::FormatDuration(options_.lost_after))));
  }
}

std::vector<WorkerRecord> WorkerRegistry::List() const {
  const MutexLock lock(mutex_);
  std::vector<WorkerRecord> records;
  for (const auto& [name, member] : workers_) records.push_back(Described(member.record));
  return records;
}

absl::StatusOr<WorkerRecord> WorkerRegistry::Get(absl::string_view worker) const {
  const MutexLock lock(mutex_);
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return NotFound(worker, "one that is known");
  return Described(found->second.record);
}

std::optional<WorkerRegistry::ProcessPlace> WorkerRegistry::FindGpuProcess(
    const RankName& process) const {
  const MutexLock lock(mutex_);
  const auto owner = gpu_owner_.find(process.gpu);
  if (owner == gpu_owner_.end()) return std::nullopt;
  const WorkerRecord& record = workers_.find(owner->second)->second.record;
  if (!HasProcess(record, process)) return std::nullopt;
  return ProcessPlace{record.name, record.execution_address};
}

}  // namespace crossmesh
