#pragma once

#include "common/mesh/device.h"
#include "common/mesh/mesh.h"
#include "common/plan/plan.h"
#include "common/plan/worker_part.h"
#include "planner/pipeline/op.h"

#include <cstddef>
#include <utility>
#include <vector>

#include <absl/container/btree_set.h>
#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Cuts the plans of a program for the workers that own its devices. Immutable.
class PlanCutter {
 public:
  // By worker: those that it owns.
  explicit PlanCutter(const std::vector<std::vector<DeviceId>>& devices_of_worker);

  // The parts of the workers that have something to do, ascending. As CutParts.
  absl::StatusOr<std::vector<std::pair<size_t, WorkerPart>>> Cut(const Plan& plan) const;
  // The workers of a rank. FailedPrecondition names a device that none of them owns.
  absl::StatusOr<absl::btree_set<size_t>> WorkersOf(RankIndex rank, const Mesh& mesh) const;

 private:
  absl::flat_hash_map<DeviceId, size_t> owner_;
};

}  // namespace crossmesh
