#pragma once

#include "common/base/cancel_check.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/mesh/device.h"
#include "common/plan/plan.h"
#include "common/plan/proof.h"
#include "common/plan/worker_part.h"
#include "planner/reshard/plan_reshard.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// A reshard that is planned and proven, with all that is derived from the plan: what the plan cache
// keeps. Immutable, but for the workers' parts, which are kept for the workers they were cut for
// last. Thread-safe.
class PlannedReshard {
 public:
  using DevicesOfWorkers = std::vector<std::vector<DeviceId>>;
  using Parts = std::vector<WorkerPart>;  // in the order of the workers

  // Plans and proves. What PlanRequest and Prove find. `clock` measures the time that it takes.
  static absl::StatusOr<std::shared_ptr<const PlannedReshard>> Create(
      ReshardRequest request, const ProofLimits& limits, const Clock& clock,
      CancelCheck cancelled = NeverCancelled);

  const ReshardRequest& request() const { return request_; }
  const ProofLimits& limits() const { return limits_; }
  const Plan& plan() const { return plan_; }
  const TensorTable& tensors() const { return plan_.tensors(); }
  const Proof& proof() const { return proof_; }
  absl::Duration plan_time() const { return plan_time_; }
  // Of the same again, as PlanningCost counts.
  int64_t planning_cost() const;
  // That send, receive or copy; ascending.
  const std::vector<DeviceRank>& moving_devices() const { return moving_devices_; }
  // Those of them that do so over communicators, if all of these are GPUs.
  const std::vector<DeviceRank>& gpu_devices() const { return gpu_devices_; }

  // What a replica receives, and its devices in text form.
  struct Replica {
    int64_t bytes = 0;
    std::string devices;
  };
  const std::vector<Replica>& replicas() const { return replicas_; }

  // The parts for workers that own these devices; null when they have not been cut.
  std::shared_ptr<const Parts> FindParts(const DevicesOfWorkers& devices) const;
  // Cuts and keeps them. What CutParts finds. Cost: linear in relays and hops.
  absl::StatusOr<std::shared_ptr<const Parts>> Cut(DevicesOfWorkers devices) const;

  // The memory that it keeps, parts included.
  int64_t heap_bytes() const;
  // `told` is called with that whenever parts were cut, on the same thread.
  void OnGrowth(std::function<void(int64_t heap_bytes)> told) const;

 private:
  PlannedReshard(ReshardRequest request, const ProofLimits& limits, Plan plan)
      : request_(std::move(request)), limits_(limits), plan_(std::move(plan)) {}
  void DescribeReplicas();
  void FindMovingDevices();
  int64_t OwnHeapBytes() const;

  const ReshardRequest request_;
  const ProofLimits limits_;
  const Plan plan_;
  Proof proof_;
  absl::Duration plan_time_;
  int64_t own_heap_bytes_ = 0;  // without parts
  std::vector<Replica> replicas_;
  std::vector<DeviceRank> moving_devices_;
  std::vector<DeviceRank> gpu_devices_;

  mutable Mutex mutex_;
  mutable DevicesOfWorkers cut_for_ ABSL_GUARDED_BY(mutex_);
  mutable std::shared_ptr<const Parts> parts_ ABSL_GUARDED_BY(mutex_);
  mutable int64_t heap_bytes_of_parts_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable std::function<void(int64_t)> told_of_growth_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
