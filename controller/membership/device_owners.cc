// Which workers own devices, and what their GPUs can use.

#include "controller/membership/worker_registry.h"

#include <string>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::StatusOr<std::vector<WorkerRecord>> WorkerRegistry::OwnersOf(
    std::span<const DeviceId> devices) const {
  const MutexLock lock(mutex_);
  absl::btree_map<std::string, const WorkerRecord*> owners;
  for (const DeviceId& device : devices) {
    const auto owner = owner_.find(device);
    if (owner == owner_.end()) {
      const std::string text = absl::StrCat("device ", ToString(device),
                                            ": expected a live worker that owns it, found none");
      if (clock_.Monotonic() < returned_by_) return absl::UnavailableError(text);
      return absl::FailedPreconditionError(text);
    }
    const WorkerRecord& record = workers_.find(owner->second)->second.record;
    if (record.state == WorkerState::kDraining) {
      return absl::FailedPreconditionError(
          absl::StrCat("device ", ToString(device), ": expected a worker that takes tasks, found ",
                       record.name, " draining"));
    }
    owners.emplace(record.name, &record);
  }
  std::vector<WorkerRecord> records;
  for (const auto& [name, record] : owners) records.push_back(*record);
  return records;
}

std::string WorkerRegistry::WhyNoM2n(std::span<const DeviceId> devices) const {
  const MutexLock lock(mutex_);
  for (const DeviceId& device : devices) {
    const auto owner = owner_.find(device);
    if (owner == owner_.end()) return absl::StrCat("no live worker owns ", ToString(device));
    const WorkerRecord& record = workers_.find(owner->second)->second.record;
    if (!record.m2n) return absl::StrCat("worker ", record.name, " does not have it");
  }
  return "";
}

size_t WorkerRegistry::m2n_workers() const {
  const MutexLock lock(mutex_);
  return m2n_workers_;
}

}  // namespace crossmesh
