#include "worker/executor/task_check.h"

#include "common/base/status_macros.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/task.h"

#include <optional>

#include <absl/container/flat_hash_set.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status CheckBinding(const TaskSpec& spec, Side side, DeviceRank device) {
  const auto& bindings = side == Side::kSource ? spec.sources : spec.destinations;
  const TensorTable& tensors = spec.part->part().tensors();
  const TileMap& map = spec.part->tiles(side, device);
  const auto found = bindings.find(device);
  const size_t bound = found == bindings.end() ? 0 : found->second.tensor.size();
  for (size_t tensor = 0; tensor < tensors.group_of_tensor().size(); ++tensor) {
    const int32_t group = tensors.group_of_tensor()[tensor];
    if (group < 0 || map.tile_bytes(group) == 0) continue;
    // Scales of sources are not given: the task computes them.
    if (side == Side::kSource && tensors.is_scales(group)) continue;
    if (tensor < bound && found->second.tensor[tensor] != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(side == Side::kSource ? "source" : "destination", " of device ",
                     ToString(tensors.devices()[device]), ": expected memory for the ",
                     map.tile_bytes(group), " bytes of tensor ", tensor, ", found none"));
  }
  return absl::OkStatus();
}

absl::Status CheckBindings(const TaskSpec& spec) {
  const PreparedPart& part = *spec.part;
  for (const DeviceRank device : part.destinations()) {
    RETURN_IF_ERROR(CheckBinding(spec, Side::kDestination, device));
  }
  for (const PreparedPart::Copy& copy : part.copies()) {
    RETURN_IF_ERROR(CheckBinding(spec, Side::kSource, copy.device));
  }
  absl::flat_hash_set<DeviceRank> roots;
  for (const PreparedPart::Node& node : part.nodes()) {
    if (!node.root || !roots.insert(node.device).second) continue;
    RETURN_IF_ERROR(CheckBinding(spec, Side::kSource, node.device));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTask(const TaskSpec& spec, int64_t staged_chunk_bytes_max) {
  const PreparedPart& part = *spec.part;
  if (part.chunk_bytes() > staged_chunk_bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunks of ", part.chunk_bytes(), " bytes: expected at most the ",
                     staged_chunk_bytes_max, " bytes of staging in one direction"));
  }
  RETURN_IF_ERROR(CheckBindings(spec));
  for (const PreparedPart::Channel& channel : part.channels()) {
    const std::optional<DeviceRank> remote = channel.remote_end();
    if (!remote.has_value()) continue;
    const auto peer = spec.peer_of_device.find(*remote);
    if (peer == spec.peer_of_device.end() || peer->second < 0 ||
        peer->second >= std::ssize(spec.peers)) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(part, channel), ": expected the worker of ",
                       ToString(part.part().tensors().devices()[*remote]), ", found none"));
    }
  }
  return absl::OkStatus();
}

std::vector<bool> NeededPeers(const TaskSpec& spec) {
  std::vector<bool> needed(spec.peers.size());
  for (const PreparedPart::Channel& channel : spec.part->channels()) {
    if (const std::optional<DeviceRank> remote = channel.remote_end()) {
      needed[spec.peer_of_device.at(*remote)] = true;
    }
  }
  return needed;
}

}  // namespace crossmesh
