#include "common/reshard/reshard_tensors.h"

#include "common/base/status_macros.h"

#include <cstdint>
#include <tuple>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// The placements of one side. Thread-compatible.
class PlacementTable {
 public:
  PlacementTable(absl::string_view side, const ReshardLayout& layout)
      : side_(side), layout_(layout) {}

  // The index of the tensor's placement, which is added if it is new.
  absl::StatusOr<int32_t> PlacementOf(const TensorSpec& tensor) {
    absl::StatusOr<RuleMatch> match = layout_.rules.Match(tensor.name, tensor.shape.rank());
    if (!match.ok()) return Refused(tensor, match.status());
    const auto by_rule = by_rule_.find(Key(match->line, tensor.shape.rank(), match->coordinates));
    if (by_rule != by_rule_.end()) return by_rule->second;
    absl::StatusOr<int32_t> placement = Intern(*match);
    if (!placement.ok()) return Refused(tensor, placement.status());
    by_rule_.emplace(Key(match->line, tensor.shape.rank(), std::move(match->coordinates)),
                     *placement);
    return placement;
  }

  absl::Status CheckFits(const TensorSpec& tensor, int32_t placement) const {
    const Placement& place = placements_[placement];
    const absl::Status status = place.layout.Validate(place.mesh, tensor.shape);
    return status.ok() ? status : Refused(tensor, status);
  }

  std::vector<Placement> Take() { return std::move(placements_); }

 private:
  // A rule gives tensors of one rank at one place of the mesh the same placement.
  using Key = std::tuple<int, int, Coordinates>;

  // Rules that say the same share a placement.
  absl::StatusOr<int32_t> Intern(const RuleMatch& match) {
    const std::string text =
        absl::StrCat(ToString(match.layout), " on ", CoordinatesToString(match.coordinates));
    const auto [found, is_new] = by_text_.try_emplace(text, 0);
    if (is_new) {
      absl::StatusOr<Mesh> mesh = layout_.mesh.Select(match.coordinates);
      if (!mesh.ok()) {
        by_text_.erase(found);
        return mesh.status();
      }
      found->second = static_cast<int32_t>(placements_.size());
      placements_.push_back({.mesh = *std::move(mesh), .layout = match.layout});
    }
    return found->second;
  }

  absl::Status Refused(const TensorSpec& tensor, const absl::Status& why) const {
    return absl::InvalidArgumentError(
        absl::StrCat(side_, " layout of tensor \"", tensor.name, "\": ", why.message()));
  }

  const absl::string_view side_;
  const ReshardLayout& layout_;
  std::vector<Placement> placements_;
  absl::flat_hash_map<Key, int32_t> by_rule_;
  absl::flat_hash_map<std::string, int32_t> by_text_;
};

}  // namespace

absl::StatusOr<TensorTable> BuildReshardTensors(const Manifest& manifest,
                                                const ReshardLayout& source,
                                                const ReshardLayout& destination,
                                                std::vector<std::string> replica_axes) {
  PlacementTable sources("source", source);
  PlacementTable destinations("destination", destination);
  TensorTable::Spec spec;
  spec.manifest = manifest.digest();
  spec.replica_axes = std::move(replica_axes);
  spec.group_of_tensor.reserve(manifest.tensors().size());
  absl::flat_hash_map<std::tuple<Shape, DataType, int32_t, int32_t>, int32_t> group_of;
  for (const TensorSpec& tensor : manifest.tensors()) {
    ASSIGN_OR_RETURN(const int32_t from, sources.PlacementOf(tensor));
    ASSIGN_OR_RETURN(const int32_t to, destinations.PlacementOf(tensor));
    const auto [found, is_new] =
        group_of.try_emplace({tensor.shape, tensor.type, from, to}, spec.groups.size());
    if (is_new) {
      RETURN_IF_ERROR(sources.CheckFits(tensor, from));
      RETURN_IF_ERROR(destinations.CheckFits(tensor, to));
      spec.groups.push_back(
          {.shape = tensor.shape, .type = tensor.type, .source = from, .destination = to});
    }
    spec.group_of_tensor.push_back(found->second);
  }
  spec.sources = sources.Take();
  spec.destinations = destinations.Take();
  return TensorTable::Create(std::move(spec));
}

}  // namespace crossmesh
