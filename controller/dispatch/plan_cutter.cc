#include "controller/dispatch/plan_cutter.h"

#include "common/base/status_macros.h"

#include <absl/container/btree_map.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

PlanCutter::PlanCutter(const std::vector<std::vector<DeviceId>>& devices_of_worker) {
  for (size_t worker = 0; worker < devices_of_worker.size(); ++worker) {
    for (const DeviceId& device : devices_of_worker[worker]) owner_[device] = worker;
  }
}

absl::StatusOr<std::vector<std::pair<size_t, WorkerPart>>> PlanCutter::Cut(const Plan& plan) const {
  absl::btree_map<size_t, std::vector<DeviceId>> owned;
  for (const DeviceId& device : plan.tensors().devices()) {
    const auto owner = owner_.find(device);
    if (owner != owner_.end()) owned[owner->second].push_back(device);
  }
  std::vector<std::vector<DeviceId>> devices;
  for (const auto& [worker, of_worker] : owned) devices.push_back(of_worker);
  ASSIGN_OR_RETURN(std::vector<WorkerPart> parts, CutParts(plan, devices));
  std::vector<std::pair<size_t, WorkerPart>> of_workers;
  auto part = parts.begin();
  for (const auto& [worker, of_worker] : owned) {
    if (part->moves_bytes()) of_workers.emplace_back(worker, std::move(*part));
    ++part;
  }
  return of_workers;
}

absl::StatusOr<absl::btree_set<size_t>> PlanCutter::WorkersOf(RankIndex rank,
                                                              const Mesh& mesh) const {
  absl::btree_set<size_t> workers;
  for (const DeviceId& device : mesh.devices()) {
    const auto owner = owner_.find(device);
    if (owner == owner_.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("device ", ToString(device), " of rank ", rank, ": expected a live worker"));
    }
    workers.insert(owner->second);
  }
  return workers;
}

}  // namespace crossmesh
