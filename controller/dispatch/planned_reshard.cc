#include "controller/dispatch/planned_reshard.h"

#include "common/base/status_macros.h"
#include "common/mesh/mesh.h"

namespace crossmesh {

absl::StatusOr<std::shared_ptr<const PlannedReshard>> PlannedReshard::Create(
    ReshardRequest request, const ProofLimits& limits, const Clock& clock, CancelCheck cancelled) {
  const absl::Duration start = clock.Monotonic();
  ASSIGN_OR_RETURN(Plan plan, PlanReshard(request, cancelled));
  RETURN_IF_ERROR(CheckWanted(cancelled));
  ASSIGN_OR_RETURN(const Proof proof, Prove(plan, limits));
  std::shared_ptr<PlannedReshard> planned(
      new PlannedReshard(std::move(request), limits, std::move(plan)));
  planned->proof_ = proof;
  planned->DescribeReplicas();
  planned->FindMovingDevices();
  planned->plan_time_ = clock.Monotonic() - start;
  return planned;
}

void PlannedReshard::DescribeReplicas() {
  const TensorTable& table = tensors();
  std::vector<std::vector<DeviceId>> devices(table.replicas());
  replicas_.resize(table.replicas());
  for (DeviceRank rank = 0; rank < static_cast<DeviceRank>(table.devices().size()); ++rank) {
    const int32_t replica = table.replica_of(rank);
    if (replica < 0) continue;
    devices[replica].push_back(table.devices()[rank]);
    replicas_[replica].bytes += table.BytesOf(Side::kDestination, rank);
  }
  for (size_t i = 0; i < replicas_.size(); ++i) replicas_[i].devices = DevicesToString(devices[i]);
}

void PlannedReshard::FindMovingDevices() {
  std::vector<bool> moves(tensors().devices().size());
  for (const Hop& hop : plan_.hops()) moves[hop.from] = moves[hop.to] = true;
  for (const LocalCopy& copy : plan_.copies()) moves[copy.device] = true;
  for (DeviceRank rank = 0; rank < static_cast<DeviceRank>(moves.size()); ++rank) {
    if (moves[rank]) moving_devices_.push_back(rank);
  }
}

std::shared_ptr<const PlannedReshard::Parts> PlannedReshard::FindParts(
    const DevicesOfWorkers& devices) const {
  const MutexLock lock(mutex_);
  return cut_for_ == devices ? parts_ : nullptr;
}

absl::StatusOr<std::shared_ptr<const PlannedReshard::Parts>> PlannedReshard::Cut(
    DevicesOfWorkers devices) const {
  ASSIGN_OR_RETURN(Parts cut, CutParts(plan_, devices));
  auto parts = std::make_shared<const Parts>(std::move(cut));
  const MutexLock lock(mutex_);
  cut_for_ = std::move(devices);
  parts_ = parts;
  return parts;
}

int64_t PlannedReshard::weight() const {
  // Hops are in the plan and, once at each end, in the parts; every tensor and class has a few
  // integers; cells of the slicing dominate what has many groups.
  const Slicing& slicing = plan_.slicing();
  int64_t cells = 0;
  for (int32_t g = 0; g < slicing.grids(); ++g) cells += slicing.grid(g).cell_count();
  return 4096 + 128 * static_cast<int64_t>(plan_.hops().size() + plan_.relays().size()) +
         16 * static_cast<int64_t>(tensors().group_of_tensor().size()) +
         64 * static_cast<int64_t>(slicing.classes().size() + tensors().devices().size()) +
         24 * cells;
}

}  // namespace crossmesh
