#include "examples/tensor_parallel_training/state_checkpoint.h"

#include "common/base/status_macros.h"

#include <span>
#include <utility>

namespace crossmesh::grid_training {

std::vector<training::CheckpointBox> CheckpointBoxesOf(const DeviceRole& role,
                                                       const Tensors& state) {
  std::vector<training::CheckpointBox> boxes;
  for (const Parameter& part : StateOf(role.settings, role.stage)) {
    const Matrix& values = state.find(part.name)->second;
    std::span<const float> rest(values.data(), values.size());
    for (const Box& box : TileOf(role, part)) {
      boxes.push_back({.tensor = part.name, .box = box, .values = rest.first(box.volume())});
      rest = rest.subspan(box.volume());
    }
  }
  return boxes;
}

absl::StatusOr<Tensors> ReadState(const training::CheckpointFiles& checkpoint,
                                  const DeviceRole& role) {
  Tensors state;
  for (const Parameter& part : StateOf(role.settings, role.stage)) {
    Matrix values = RoomFor(role, part);
    std::span<float> rest(values.data(), values.size());
    for (const Box& box : TileOf(role, part)) {
      RETURN_IF_ERROR(checkpoint.Read(part.name, box, rest.first(box.volume())));
      rest = rest.subspan(box.volume());
    }
    state.emplace(part.name, std::move(values));
  }
  return state;
}

}  // namespace crossmesh::grid_training
