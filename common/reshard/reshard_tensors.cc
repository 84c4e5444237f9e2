#include "common/reshard/reshard_tensors.h"

#include "common/base/status_macros.h"
#include "common/mesh/conversion.h"
#include "common/plan/scale_tensors.h"

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

namespace crossmesh {
namespace {

// Where a tensor lies on one side, and its type there.
struct Place {
  int32_t placement = 0;
  DataType type = DataType::kF32;
};

// The placements of one side. Thread-compatible.
class PlacementTable {
 public:
  PlacementTable(absl::string_view side, const ReshardLayout& layout)
      : side_(side), layout_(layout) {}

  // The tensor's placement is added if it is new.
  absl::StatusOr<Place> PlaceOf(const TensorSpec& tensor) {
    absl::StatusOr<RuleMatch> match = layout_.rules.Match(tensor.name, tensor.shape.rank());
    if (!match.ok()) return Refused(tensor, match.status());
    const absl::StatusOr<int32_t> placement = PlacementOf(tensor.shape.rank(), *match);
    if (!placement.ok()) return Refused(tensor, placement.status());
    return Place{.placement = *placement, .type = match->type.value_or(tensor.type)};
  }

  // `sent_as` is the tensor's type at the destination.
  absl::Status CheckFits(const TensorSpec& tensor, const Place& place, DataType sent_as) const {
    const Placement& placement = placements_[place.placement];
    absl::Status status = placement.layout.Validate(placement.mesh, tensor.shape);
    if (status.ok()) status = CheckConversion(tensor.type, place.type);
    if (status.ok() && HasScales({.type = tensor.type, .sent_as = sent_as})) {
      status = PlaceScales(placement, tensor.shape).status();
    }
    return status.ok() ? status : Refused(tensor, status);
  }

  // What the source holds is of the manifest's type.
  absl::Status CheckNotConverted(const TensorSpec& tensor, const Place& place) const {
    if (place.type == tensor.type) return absl::OkStatus();
    return Refused(tensor, absl::InvalidArgumentError(absl::StrCat(
                               "expected no type but that of the manifest, ",
                               DataTypeName(tensor.type), ", found ", DataTypeName(place.type))));
  }

  absl::Status CheckScalesName(const TensorSpec& tensor, const Manifest& manifest) const {
    const std::string name = ScalesName(tensor.name);
    if (!manifest.Find(name).has_value()) return absl::OkStatus();
    return Refused(tensor,
                   absl::InvalidArgumentError(absl::StrCat(
                       "expected no tensor that is called as its scales, found \"", name, "\"")));
  }

  std::vector<Placement> Take() { return std::move(placements_); }

 private:
  // A rule gives tensors of one rank at one place of the mesh the same placement.
  using Key = std::tuple<int, int, Coordinates>;

  absl::StatusOr<int32_t> PlacementOf(int rank, const RuleMatch& match) {
    const Key key(match.line, rank, match.coordinates);
    const auto known = by_rule_.find(key);
    if (known != by_rule_.end()) return known->second;
    ASSIGN_OR_RETURN(const int32_t placement, Intern(match));
    by_rule_.emplace(key, placement);
    return placement;
  }

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
    const std::string name = absl::StrCat("tensor \"", absl::CHexEscape(tensor.name), "\": ");
    return absl::InvalidArgumentError(
        absl::StrCat(side_, " layout of ", name, absl::StripPrefix(why.message(), name)));
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
  // By the types and placements of both sides.
  using Key = std::tuple<Shape, DataType, int32_t, DataType, int32_t>;
  absl::flat_hash_map<Key, int32_t> group_of;
  for (const TensorSpec& tensor : manifest.tensors()) {
    ASSIGN_OR_RETURN(const Place from, sources.PlaceOf(tensor));
    ASSIGN_OR_RETURN(const Place to, destinations.PlaceOf(tensor));
    RETURN_IF_ERROR(sources.CheckNotConverted(tensor, from));
    const auto [found, is_new] = group_of.try_emplace(
        {tensor.shape, from.type, from.placement, to.type, to.placement}, spec.groups.size());
    if (is_new) {
      RETURN_IF_ERROR(sources.CheckFits(tensor, from, to.type));
      RETURN_IF_ERROR(destinations.CheckFits(tensor, to, to.type));
      TensorGroup& group = spec.groups.emplace_back();
      group = {.shape = tensor.shape,
               .type = tensor.type,
               .source = from.placement,
               .destination = to.placement};
      if (to.type != tensor.type) group.sent_as = to.type;
      if (spec.names.size() < TensorTable::kNamesMax) spec.names.push_back(tensor.name);
    }
    spec.group_of_tensor.push_back(found->second);
    if (HasScales(spec.groups[found->second])) {
      RETURN_IF_ERROR(destinations.CheckScalesName(tensor, manifest));
    }
  }
  spec.sources = sources.Take();
  spec.destinations = destinations.Take();
  RETURN_IF_ERROR(AddScales(spec));
  return TensorTable::Create(std::move(spec));
}

}  // namespace crossmesh
