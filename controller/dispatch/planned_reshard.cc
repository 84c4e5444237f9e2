#include "controller/dispatch/planned_reshard.h"

#include "common/base/heap_bytes.h"
#include "common/base/status_macros.h"
#include "common/mesh/mesh.h"
#include "common/plan/plan_memory.h"
#include "controller/dispatch/planning_queue.h"
#include "planner/redistribute/planning/plan_request.h"

#include <algorithm>
#include <iterator>

namespace crossmesh {
namespace {

int64_t DevicesBytes(const std::vector<DeviceId>& devices) {
  int64_t bytes = ArrayBytes(devices);
  for (const DeviceId& device : devices) bytes += HeapBytes(device.host);
  return bytes;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const PlannedReshard>> PlannedReshard::Create(
    ReshardRequest request, const ProofLimits& limits, const Clock& clock, CancelCheck cancelled) {
  const absl::Duration start = clock.Monotonic();
  ASSIGN_OR_RETURN(Plan plan, PlanRequest(request, cancelled));
  RETURN_IF_ERROR(CheckWanted(cancelled));
  ASSIGN_OR_RETURN(const Proof proof, Prove(plan, limits, cancelled));
  std::shared_ptr<PlannedReshard> planned(
      new PlannedReshard(std::move(request), limits, std::move(plan)));
  planned->proof_ = proof;
  planned->DescribeReplicas();
  planned->FindMovingDevices();
  planned->own_heap_bytes_ = planned->OwnHeapBytes();
  planned->plan_time_ = clock.Monotonic() - start;
  return planned;
}

int64_t PlannedReshard::planning_cost() const {
  return PlanningCost(std::ssize(tensors().group_of_tensor()), std::ssize(tensors().devices()));
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
  const std::vector<DeviceRank>& over_gpus = plan_.spec().over_gpus;
  // Of a plan without a half over GPUs, all may be GPUs.
  const auto is_received_so = [&](DeviceRank device) {
    return over_gpus.empty() || std::ranges::binary_search(over_gpus, device);
  };
  std::vector<bool> moves(tensors().devices().size());
  std::vector<bool> moves_over_gpus(moves.size());
  const auto note = [&](DeviceRank device, DeviceRank receiver) {
    moves[device] = true;
    if (is_received_so(receiver)) moves_over_gpus[device] = true;
  };
  for (const Hop& hop : plan_.hops()) {
    note(hop.from, hop.to);
    note(hop.to, hop.to);
  }
  for (const LocalCopy& copy : plan_.copies()) note(copy.device, copy.device);
  // In courses all take part. All must make the calls of M2N, also those whose bytes it takes from
  // others that have the same.
  if (plan_.has_courses() || plan_.spec().m2n) {
    moves.assign(moves.size(), true);
    moves_over_gpus.assign(moves.size(), over_gpus.empty());
    for (const DeviceRank device : over_gpus) moves_over_gpus[device] = true;
  }
  for (DeviceRank rank = 0; rank < static_cast<DeviceRank>(moves.size()); ++rank) {
    if (moves[rank]) moving_devices_.push_back(rank);
    if (moves_over_gpus[rank]) gpu_devices_.push_back(rank);
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
  int64_t bytes = ArrayBytes(*parts) + ArrayBytes(devices);
  for (const WorkerPart& part : *parts) bytes += HeapBytes(part);
  for (const std::vector<DeviceId>& of_worker : devices) bytes += DevicesBytes(of_worker);
  std::function<void(int64_t)> told;
  {
    const MutexLock lock(mutex_);
    cut_for_ = std::move(devices);
    parts_ = parts;
    heap_bytes_of_parts_ = bytes;
    told = told_of_growth_;
  }
  if (told != nullptr) told(own_heap_bytes_ + bytes);
  return parts;
}

int64_t PlannedReshard::OwnHeapBytes() const {
  int64_t bytes = AllocationBytes(sizeof(PlannedReshard)) + HeapBytes(plan_) +
                  HeapBytes(request_.topology) + ArrayBytes(replicas_) +
                  HeapBytes(moving_devices_) + HeapBytes(gpu_devices_);
  for (const Replica& replica : replicas_) bytes += HeapBytes(replica.devices);
  return bytes;
}

int64_t PlannedReshard::heap_bytes() const {
  const MutexLock lock(mutex_);
  return own_heap_bytes_ + heap_bytes_of_parts_;
}

void PlannedReshard::OnGrowth(std::function<void(int64_t heap_bytes)> told) const {
  const MutexLock lock(mutex_);
  told_of_growth_ = std::move(told);
}

}  // namespace crossmesh
