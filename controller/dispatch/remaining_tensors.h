#pragma once

#include "common/mesh/device.h"
#include "common/plan/tensor_table.h"

#include <cstdint>
#include <set>

#include <absl/status/statusor.h>

namespace crossmesh {

// The part of a table that is still to be moved: to the replicas `replicas` only, from all devices
// but `lost`. The new table counts the replicas in ascending order: its replica i is the i-th of
// `replicas`. Tensors, groups and their order stay, so that storages keep their layout.
//
// A placement that has lost devices becomes one of explicit tiles over those that are left.
//
// FailedPrecondition, naming the device: a lost device belongs to a replica that remains, or all
// sources of a tensor are lost. What else has no holder now is found when the table is planned.
// Cost: slots times groups.
absl::StatusOr<TensorTable> RemainingTensors(const TensorTable& table,
                                             const std::set<int32_t>& replicas,
                                             const std::set<DeviceId>& lost);

}  // namespace crossmesh
