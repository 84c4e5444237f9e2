#pragma once

#include "common/mesh/shape.h"
#include "common/plan/tensor_table.h"

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// A tensor that is sent as F8_E4M3 arrives with its scales (common/mesh/conversion.h), a tensor
// that no source has: they are computed, block by block, when a source tile is read.

// Where the scales of a tensor lie: each where the elements of its block do. By the same layout
// where that gives these tiles, else by explicit tiles.
//
// InvalidArgument, naming slot, box, dimension and cut: a tile cuts a block, or the tensor has
// none. Cost: linear in slots.
absl::StatusOr<Placement> PlaceScales(const Placement& placement, const Shape& tensor);

// Adds the scales of all tensors that are sent as F8_E4M3, after the tensors that are there and in
// their order. What PlaceScales finds. Cost: slots times groups that are sent so.
absl::Status AddScales(TensorTable::Spec& spec);

}  // namespace crossmesh
