#include "examples/tensor_parallel_training/state_memory.h"

#include "common/base/status_macros.h"
#include "common/mesh/layout.h"
#include "common/mesh/layout_rules.h"
#include "common/mesh/mesh.h"
#include "common/mesh/shape.h"
#include "common/plan/storage_layout.h"
#include "common/plan/tensor_table.h"
#include "common/reshard/reshard_tensors.h"
#include "common/wire/tensor_codec.h"
#include "planner/parallelism/programs/stage_schedule.h"

#include <cstring>
#include <map>
#include <optional>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh::grid_training {
namespace {

std::vector<Parameter> WholeState(const TrainingSettings& settings) {
  return StateOf(settings, {.count = settings.model.layers});
}

}  // namespace

absl::StatusOr<Manifest> ManifestOf(const TrainingSettings& settings) {
  std::vector<TensorSpec> tensors;
  for (const Parameter& part : WholeState(settings)) {
    ASSIGN_OR_RETURN(const Shape shape,
                     Shape::Create(std::vector<int64_t>{part.rows, part.columns}));
    tensors.push_back({.name = part.name, .type = DataType::kF32, .shape = shape});
  }
  return Manifest::Create(std::move(tensors));
}

v1::ReshardSide SideOf(const GridProgramRequest& request, const TrainingSettings& settings,
                       const std::string& storage) {
  std::vector<DeviceId> devices;
  std::vector<std::vector<DeviceRole>> roles;  // by device, of each of its stages
  for (const std::vector<StageIndex>& stages :
       StagesOfRanks(request.schedule, request.stages.size())) {
    const Mesh& mesh = *request.stages[stages.front()].mesh;
    devices.insert(devices.end(), mesh.devices().begin(), mesh.devices().end());
    for (int64_t slot = 0; slot < mesh.slots(); ++slot) {
      std::vector<DeviceRole>& of = roles.emplace_back();
      for (const StageIndex stage : stages) {
        of.push_back(RoleOf(request, settings.optimizer, stage, slot));
      }
    }
  }
  std::map<std::string, ExplicitLayout> layouts;
  for (size_t slot = 0; slot < roles.size(); ++slot) {
    for (const DeviceRole& role : roles[slot]) {
      for (const Parameter& part : StateOf(settings, role.stage)) {
        ExplicitLayout& layout = layouts[part.name];
        layout.slots.resize(roles.size());
        layout.slots[slot] = TileOf(role, part);
      }
    }
  }
  v1::ReshardSide side;
  side.mutable_inline_mesh()->set_axes(absl::StrCat("device=", devices.size()));
  side.mutable_inline_mesh()->set_devices(DevicesToString(devices));
  for (const auto& [name, layout] : layouts) {
    v1::LayoutRule& rule = *side.add_rules();
    rule.set_pattern(name);
    rule.set_layout(ToString(Layout(layout)));
  }
  side.set_storage(storage);
  return side;
}

absl::StatusOr<StateMemory> StateMemory::Create(const v1::ReshardSide& side,
                                                const TrainingSettings& settings,
                                                const DeviceId& device) {
  ASSIGN_OR_RETURN(const Mesh mesh, FromProto(side.inline_mesh()));
  ASSIGN_OR_RETURN(const LayoutRules rules, FromProto(side.rules()));
  ASSIGN_OR_RETURN(const Manifest manifest, ManifestOf(settings));
  ASSIGN_OR_RETURN(const TensorTable table,
                   BuildReshardTensors(manifest, {mesh, rules}, {mesh, rules}, {}));
  const std::optional<DeviceRank> rank = table.FindDevice(device);
  if (!rank.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a device of ", ToString(mesh), ", found ", ToString(device)));
  }
  const StorageLayout layout = LayOut(table, Side::kSource, *rank);
  StateMemory memory;
  memory.bytes_ = layout.bytes;
  for (size_t tensor = 0; tensor < layout.offset_of_tensor.size(); ++tensor) {
    const int64_t offset = layout.offset_of_tensor[tensor];
    if (offset >= 0) memory.offsets_.emplace_back(manifest.tensors()[tensor].name, offset);
  }
  return memory;
}

void StateMemory::Write(const Tensors& state, std::span<std::byte> memory) const {
  for (const auto& [name, offset] : offsets_) {
    const Matrix& values = state.find(name)->second;
    std::memcpy(memory.data() + offset, values.data(), values.size() * sizeof(float));
  }
}

void StateMemory::Read(std::span<const std::byte> memory, Tensors& state) const {
  for (const auto& [name, offset] : offsets_) {
    Matrix& values = state.find(name)->second;
    std::memcpy(values.data(), memory.data() + offset, values.size() * sizeof(float));
  }
}

}  // namespace crossmesh::grid_training
