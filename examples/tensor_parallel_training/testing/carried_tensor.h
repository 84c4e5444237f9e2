#pragma once

#include "common/plan/plan.h"
#include "planner/layers/layer_program.h"

#include <cstddef>
#include <span>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh::grid_training {

// The tiles of a message at its destination, by slot, from those of its source: the whole tensor
// once for each summand, reduced in the order of slots, and cut. Of floats. Internal, naming the
// slots: tiles that leave out an element, or that differ where they are copies.
absl::StatusOr<std::vector<std::vector<std::byte>>> CarryTensor(
    const LayerProgram& program, const LayerProgram::Transfer& transfer,
    std::span<const std::vector<std::byte>> given);

// The same by the steps of the plan that workers carry it out by: each step is carried in the
// plainest way, and what it brings is reduced in the order of its summands. So sums of several
// steps have the bits that they have at workers. `plan`: as PlanLayers makes it for the transfer.
absl::StatusOr<std::vector<std::vector<std::byte>>> CarryByPlan(
    const LayerProgram& program, const LayerProgram::Transfer& transfer, const Plan& plan,
    std::vector<std::vector<std::byte>> given);

}  // namespace crossmesh::grid_training
