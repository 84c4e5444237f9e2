#pragma once

#include "common/base/cancel_check.h"
#include "common/base/digest.h"
#include "common/mesh/topology.h"
#include "common/plan/plan.h"
#include "common/plan/tensor_table.h"
#include "planner/layers/layer_program.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <absl/status/statusor.h>

namespace crossmesh {

// Plans transfers of a layer program and proves the plans, those that are equal but for names once.
// Refers to the program. Thread-compatible.
class LayerTransferPlanner {
 public:
  LayerTransferPlanner(const LayerProgram& program, const Topology& topology, CancelCheck cancelled)
      : program_(program), topology_(topology), cancelled_(cancelled) {}

  // As PlanLayers, without the transfer's name.
  absl::StatusOr<std::shared_ptr<const Plan>> PlanOf(const LayerProgram::Transfer& transfer);

 private:
  absl::StatusOr<Plan> Make(const LayerProgram::Transfer& transfer,
                            std::shared_ptr<const TensorTable> tensors) const;
  absl::StatusOr<TensorTable> TensorsOf(const LayerProgram::Transfer& transfer) const;

  const LayerProgram& program_;
  const Topology topology_;
  const CancelCheck cancelled_;
  // By all that a plan is made from.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<const Plan>> plans_;
  int64_t hops_ = 0;  // of all of them
};

}  // namespace crossmesh
