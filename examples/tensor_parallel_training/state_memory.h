#pragma once

#include "common/mesh/device.h"
#include "common/mesh/manifest.h"
#include "crossmesh/v1/reshard.pb.h"
#include "examples/tensor_parallel_training/device_role.h"
#include "examples/tensor_parallel_training/parameters.h"
#include "planner/parallelism/programs/grid_program.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh::grid_training {

// The whole state of a training, as AllParameters and StateOf name it.
absl::StatusOr<Manifest> ManifestOf(const TrainingSettings& settings);

// Where the state lies on the devices of a grid, or of several stages, as a side of a reshard: tile
// by tile, since a part of a block's elements is a layout that axes alone do not give.
v1::ReshardSide SideOf(const GridProgramRequest& request, const TrainingSettings& settings,
                       const std::string& storage);

// The state of one device in the memory of a storage. Immutable.
class StateMemory {
 public:
  // `side`: of SideOf. InvalidArgument: a device that it does not have.
  static absl::StatusOr<StateMemory> Create(const v1::ReshardSide& side,
                                            const TrainingSettings& settings,
                                            const DeviceId& device);

  int64_t bytes() const { return bytes_; }
  // Of bytes() bytes. `state` as DeviceParameters::all_stored, whose shapes Read finds there.
  void Write(const Tensors& state, std::span<std::byte> memory) const;
  void Read(std::span<const std::byte> memory, Tensors& state) const;

 private:
  std::vector<std::pair<std::string, int64_t>> offsets_;  // by name; of what the device has
  int64_t bytes_ = 0;
};

}  // namespace crossmesh::grid_training
