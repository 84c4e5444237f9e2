#include "controller/dispatch/remaining_tensors.h"

#include "common/base/status_macros.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Some slots of a placement, in an order, as a placement of explicit tiles.
struct KeptSlots {
  std::vector<Axis> axes;
  std::vector<int64_t> slots;
};

absl::StatusOr<Placement> Keep(const Placement& placement, const Shape& shape,
                               const KeptSlots& kept) {
  const std::vector<Tile> tiles = placement.layout.Tiles(placement.mesh, shape);
  std::vector<DeviceId> devices;
  ExplicitLayout layout;
  for (const int64_t slot : kept.slots) {
    devices.push_back(placement.mesh.devices()[slot]);
    layout.slots.push_back(tiles[slot]);
  }
  ASSIGN_OR_RETURN(Mesh mesh, Mesh::Create(kept.axes, std::move(devices)));
  return Placement{std::move(mesh), Layout(std::move(layout))};
}

// Builds one side: groups that shared a placement and a shape share the new one.
class RemainingSide {
 public:
  RemainingSide(const TensorTable& table, Side side) : table_(table), side_(side) {}

  // The index of what remains of the group's placement; `kept` is null when all of it does.
  absl::StatusOr<int32_t> Add(int32_t group, const KeptSlots* kept) {
    const int32_t old = table_.placement_of(side_, group);
    const Shape& shape = table_.groups()[group].shape;
    const std::vector<int64_t> lengths(shape.lengths().begin(), shape.lengths().end());
    // A placement that stays whole serves groups of any shape. What is cut becomes explicit tiles,
    // which are of one shape.
    const auto [entry, added] = index_.try_emplace(
        {old, kept == nullptr ? std::vector<int64_t>() : lengths, kept != nullptr},
        static_cast<int32_t>(placements_.size()));
    if (!added) return entry->second;
    const Placement& placement = table_.placements(side_)[old];
    if (kept == nullptr) {
      placements_.push_back(placement);
    } else {
      ASSIGN_OR_RETURN(placements_.emplace_back(), Keep(placement, shape, *kept));
    }
    return entry->second;
  }
  std::vector<Placement> Take() { return std::move(placements_); }

 private:
  const TensorTable& table_;
  const Side side_;
  std::vector<Placement> placements_;
  std::map<std::tuple<int32_t, std::vector<int64_t>, bool>, int32_t> index_;
};

absl::StatusOr<std::vector<KeptSlots>> KeptSources(const TensorTable& table,
                                                   const std::set<DeviceId>& lost) {
  std::vector<KeptSlots> kept;
  for (const Placement& placement : table.placements(Side::kSource)) {
    KeptSlots& slots = kept.emplace_back();
    const std::vector<DeviceId>& devices = placement.mesh.devices();
    for (int64_t slot = 0; slot < placement.mesh.slots(); ++slot) {
      if (!lost.contains(devices[slot])) slots.slots.push_back(slot);
    }
    if (slots.slots.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("source mesh ", ToString(placement.mesh), ": all of its devices are lost"));
    }
    slots.axes = {{"slot", static_cast<int64_t>(slots.slots.size())}};
  }
  return kept;
}

// The slots of a destination placement on which the replica lies.
absl::StatusOr<std::vector<int64_t>> SlotsOfReplica(const TensorTable& table, int32_t placement,
                                                    int32_t replica,
                                                    const std::set<DeviceId>& lost) {
  std::vector<int64_t> slots;
  const std::vector<DeviceRank>& ranks = table.slots(Side::kDestination, placement);
  for (size_t slot = 0; slot < ranks.size(); ++slot) {
    if (table.replica_of(ranks[slot]) != replica) continue;
    const DeviceId& device = table.devices()[ranks[slot]];
    if (lost.contains(device)) {
      return absl::FailedPreconditionError(absl::StrCat("device ", ToString(device), " of replica ",
                                                        replica, ": its worker is lost"));
    }
    slots.push_back(static_cast<int64_t>(slot));
  }
  return slots;
}

absl::StatusOr<std::vector<KeptSlots>> KeptDestinations(const TensorTable& table,
                                                        const std::set<int32_t>& replicas,
                                                        const std::set<DeviceId>& lost) {
  std::vector<KeptSlots> kept;
  const int32_t placements = static_cast<int32_t>(table.placements(Side::kDestination).size());
  for (int32_t p = 0; p < placements; ++p) {
    std::vector<int64_t>& slots = kept.emplace_back().slots;
    // Replica by replica, so that the new mesh's first axis is the replica.
    for (const int32_t replica : replicas) {
      ASSIGN_OR_RETURN(const std::vector<int64_t> own, SlotsOfReplica(table, p, replica, lost));
      slots.insert(slots.end(), own.begin(), own.end());
    }
    const auto count = static_cast<int64_t>(replicas.size());
    kept.back().axes = {{"replica", count}, {"slot", static_cast<int64_t>(slots.size()) / count}};
  }
  return kept;
}

}  // namespace

absl::StatusOr<TensorTable> RemainingTensors(const TensorTable& table,
                                             const std::set<int32_t>& replicas,
                                             const std::set<DeviceId>& lost) {
  ASSIGN_OR_RETURN(const std::vector<KeptSlots> sources, KeptSources(table, lost));
  ASSIGN_OR_RETURN(const std::vector<KeptSlots> destinations,
                   KeptDestinations(table, replicas, lost));
  // Replicas are dropped on all destination meshes or on none: all of them count the same ones.
  const bool all_replicas = static_cast<int32_t>(replicas.size()) == table.replicas();
  TensorTable::Spec spec = table.spec();
  RemainingSide source(table, Side::kSource);
  RemainingSide destination(table, Side::kDestination);
  for (size_t g = 0; g < spec.groups.size(); ++g) {
    TensorGroup& group = spec.groups[g];
    const auto index = static_cast<int32_t>(g);
    const int32_t from = group.source;
    const bool whole =
        static_cast<int64_t>(sources[from].slots.size()) == spec.sources[from].mesh.slots();
    ASSIGN_OR_RETURN(group.source, source.Add(index, whole ? nullptr : &sources[from]));
    const KeptSlots* kept = all_replicas ? nullptr : &destinations[group.destination];
    ASSIGN_OR_RETURN(group.destination, destination.Add(index, kept));
  }
  spec.sources = source.Take();
  spec.destinations = destination.Take();
  if (!all_replicas) spec.replica_axes = {"replica"};
  return TensorTable::Create(std::move(spec));
}

}  // namespace crossmesh
