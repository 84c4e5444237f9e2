#include "common/plan/m2n_transfer.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/plan/tensor_table.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

// What M2N cannot be told of one side.
absl::Status Refusal(absl::string_view expected, absl::string_view found) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", expected, ", found ", found));
}

// Half-open.
struct Dimensions {
  int begin = 0;
  int end = 0;
};

int64_t Product(std::span<const int64_t> lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{1}, std::multiplies<>());
}

int64_t LengthOf(const Shape& shape, Dimensions of) {
  return Product(shape.lengths().subspan(of.begin, of.end - of.begin));
}

// The first dimension of which some slot has less than all; their number where none is cut.
int FirstCut(const Shape& shape, const std::vector<Tile>& tiles) {
  int first = shape.rank();
  for (const Tile& tile : tiles) {
    for (const Box& box : tile) {
      for (int d = 0; d < first; ++d) {
        if (box[d].length() < shape[d]) first = d;
      }
    }
  }
  return first;
}

// The elements that a box has of these dimensions together, row-major, where they follow each
// other: so that after the first of which it has more than one it has all.
std::optional<Interval> Joined(const Box& box, const Shape& shape, Dimensions dimensions) {
  Interval joined = {0, 1};
  for (int d = dimensions.begin; d < dimensions.end; ++d) {
    const bool is_whole = box[d].length() == shape[d];
    if (!is_whole && joined.length() > 1) return std::nullopt;
    const int64_t begin = joined.begin * shape[d] + box[d].begin;
    joined = {begin, begin + joined.length() * box[d].length()};
  }
  return joined;
}

// Tiles by rank, from the first of the side.
struct SideTiles {
  DeviceRank first_rank = 0;
  std::vector<Tile> tiles;
};

absl::StatusOr<SideTiles> TilesByRank(const TensorTable& tensors, Side side, int32_t group) {
  const int32_t placement = tensors.placement_of(side, group);
  const std::vector<DeviceRank>& slots = tensors.slots(side, placement);
  const auto [first, last] = std::ranges::minmax(slots);
  if (last - first + 1 != std::ssize(slots)) {
    const std::vector<DeviceId>& devices = tensors.devices();
    std::vector<DeviceRank> sorted = slots;
    std::ranges::sort(sorted);
    const auto gap = std::ranges::adjacent_find(sorted, [](auto a, auto b) { return a + 1 != b; });
    return Refusal("devices that follow each other among all of the request",
                   absl::StrCat(ToString(devices[*gap + 1]), " between ", ToString(devices[*gap]),
                                " and ", ToString(devices[*(gap + 1)])));
  }
  SideTiles by_rank{.first_rank = first, .tiles = std::vector<Tile>(slots.size())};
  const Placement& of = tensors.PlacementOf(side, group);
  std::vector<Tile> tiles = of.layout.Tiles(of.mesh, tensors.groups()[group].shape);
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    by_rank.tiles[slots[slot] - first] = std::move(tiles[slot]);
  }
  return by_rank;
}

// The parts that ranks have, and how many elements of the joined dimensions each is.
struct PartNumbers {
  std::vector<int64_t> by_rank;
  int64_t length = 1;
};

absl::StatusOr<PartNumbers> PartsByRank(const Shape& shape, const std::vector<Tile>& tiles,
                                        Dimensions cut) {
  PartNumbers parts;
  for (const Tile& tile : tiles) {
    if (tile.size() != 1) {
      return Refusal("one box in every slot", absl::StrCat(tile.size(), " in one"));
    }
    const Box& box = tile.front();
    const std::optional<Interval> part = Joined(box, shape, cut);
    const Dimensions after = {cut.end, shape.rank()};
    const bool is_whole_after = Joined(box, shape, after) == Interval{0, LengthOf(shape, after)};
    if (!part.has_value() || !is_whole_after) {
      return Refusal("a cut of one dimension", absl::StrCat("tile ", ToString(box)));
    }
    if (parts.by_rank.empty()) parts.length = part->length();
    if (part->length() != parts.length || part->begin % parts.length != 0 ||
        LengthOf(shape, cut) % parts.length != 0) {
      return Refusal(absl::StrCat("equal parts of shape ", ToString(shape)),
                     absl::StrCat("tile ", ToString(box)));
    }
    parts.by_rank.push_back(part->begin / parts.length);
  }
  return parts;
}

// Mesh and placements that give the ranks these parts.
absl::Status SetMesh(const std::vector<int64_t>& by_rank, int64_t parts, int32_t dimension,
                     M2nSide& side) {
  const auto ranks = std::ssize(by_rank);
  const int64_t copies = ranks / parts;
  const auto is = [&](auto part_of) {
    if (copies * parts != ranks) return false;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      if (by_rank[rank] != part_of(rank)) return false;
    }
    return true;
  };
  if (parts == 1) {
    side.mesh = {ranks};
    side.placements = {M2nSide::kReplicate};
  } else if (is([&](int64_t rank) { return rank % parts; })) {
    side.mesh = {copies, parts};
    side.placements = {M2nSide::kReplicate, dimension};
  } else if (is([&](int64_t rank) { return rank / copies; })) {
    side.mesh = {parts, copies};
    side.placements = {dimension, M2nSide::kReplicate};
  } else {
    return Refusal("parts in the order of devices, all of them again and again or each so often",
                   absl::StrCat(parts, " parts on ", ranks, " devices in another order"));
  }
  return absl::OkStatus();
}

// One after the other, from dimension 0 to the last: dimensions that are one for M2N.
std::vector<Dimensions> JoinDimensions(int rank, std::set<int> cuts) {
  cuts.insert({0, rank});
  std::vector<Dimensions> joined;
  for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut) {
    joined.push_back({*cut, *std::next(cut)});
  }
  if (joined.empty()) joined.push_back({});  // a scalar is a tensor of one element
  return joined;
}

// A side whose first cut dimension is `first_cut`.
absl::StatusOr<M2nSide> SideOf(const Shape& shape, const SideTiles& tiles, int first_cut,
                               const std::vector<Dimensions>& joined) {
  M2nSide side = {.first_rank = tiles.first_rank};
  for (const Dimensions& d : joined) side.local_shape.push_back(LengthOf(shape, d));
  const auto cut = std::ranges::find_if(
      joined, [&](const Dimensions& d) { return d.begin <= first_cut && first_cut < d.end; });
  const bool is_cut = cut != joined.end();
  const auto dimension = static_cast<int32_t>(is_cut ? cut - joined.begin() : 0);
  ASSIGN_OR_RETURN(const PartNumbers parts,
                   PartsByRank(shape, tiles.tiles, is_cut ? *cut : joined.front()));
  int64_t& length = side.local_shape[dimension];
  RETURN_IF_ERROR(SetMesh(parts.by_rank, length / parts.length, dimension, side));
  length = parts.length;
  return side;
}

// The most parts of the other side that one part meets.
int64_t PartsMet(const M2nSide& side, const M2nSide& other) {
  const auto cut_of = [](const M2nSide& s) {
    const auto cut = std::ranges::find_if(s.placements, [](int32_t p) { return p >= 0; });
    return cut == s.placements.end() ? M2nSide::kReplicate : *cut;
  };
  const int32_t cut = cut_of(side);
  if (cut == M2nSide::kReplicate || cut != cut_of(other)) return other.parts();
  const int64_t length = side.local_shape[cut], other_length = other.local_shape[cut];
  int64_t most = 0;
  for (int64_t part = 0; part < side.parts(); ++part) {
    const int64_t first = part * length / other_length;
    const int64_t last = ((part + 1) * length - 1) / other_length;
    most = std::max(most, last - first + 1);
  }
  return most;
}

absl::Status CheckLimits(const M2nTransfer& transfer, int64_t item_bytes) {
  for (const M2nSide* const side : {&transfer.source, &transfer.destination}) {
    const int64_t bytes = item_bytes * Product(side->local_shape);
    if (bytes > M2nTransfer::kTileBytesMax) {
      return Refusal(absl::StrCat("tiles of at most ", M2nTransfer::kTileBytesMax, " bytes"),
                     absl::StrCat(bytes));
    }
  }
  const int64_t sources = PartsMet(transfer.destination, transfer.source);
  if (sources > M2nTransfer::kSourcePartsMax) {
    return Refusal(absl::StrCat("at most ", M2nTransfer::kSourcePartsMax,
                                " source parts in one of the destination"),
                   absl::StrCat(sources));
  }
  const int64_t destinations = PartsMet(transfer.source, transfer.destination);
  if (destinations > M2nTransfer::kDestinationPartsMax) {
    return Refusal(absl::StrCat("at most ", M2nTransfer::kDestinationPartsMax,
                                " destination parts in one of the source"),
                   absl::StrCat(destinations));
  }
  return absl::OkStatus();
}

absl::Status CheckTensor(const TensorTable& tensors, int32_t group) {
  const TensorGroup& of = tensors.groups()[group];
  if (tensors.is_scales(group)) return Refusal("a tensor that the source holds", "scales");
  if (tensors.conversion_of(group) != kNoConversion) {
    return Refusal("one type on both sides",
                   absl::StrCat(DataTypeName(tensors.TypeOf(Side::kSource, group)), " and ",
                                DataTypeName(tensors.TypeOf(Side::kDestination, group))));
  }
  if (of.shape.elements() == 0) {
    return Refusal("elements", absl::StrCat("shape ", ToString(of.shape)));
  }
  return absl::OkStatus();
}

absl::Status CheckDisjoint(const TensorTable& tensors, const SideTiles& source,
                           const SideTiles& destination) {
  const auto end = [](const SideTiles& side) {
    return side.first_rank + static_cast<DeviceRank>(side.tiles.size());
  };
  const DeviceRank shared = std::max(source.first_rank, destination.first_rank);
  if (shared >= std::min(end(source), end(destination))) return absl::OkStatus();
  return Refusal("sides without a device in common", ToString(tensors.devices()[shared]));
}

absl::StatusOr<M2nTransfer> Describe(const TensorTable& tensors, int32_t group) {
  RETURN_IF_ERROR(CheckTensor(tensors, group));
  ASSIGN_OR_RETURN(const SideTiles sources,
                   At("source", TilesByRank(tensors, Side::kSource, group)));
  ASSIGN_OR_RETURN(const SideTiles destinations,
                   At("destination", TilesByRank(tensors, Side::kDestination, group)));
  RETURN_IF_ERROR(CheckDisjoint(tensors, sources, destinations));
  const Shape& shape = tensors.groups()[group].shape;
  const int source_cut = FirstCut(shape, sources.tiles);
  const int destination_cut = FirstCut(shape, destinations.tiles);
  const std::vector<Dimensions> joined =
      JoinDimensions(shape.rank(), {source_cut, destination_cut});
  M2nTransfer transfer;
  ASSIGN_OR_RETURN(transfer.source, At("source", SideOf(shape, sources, source_cut, joined)));
  ASSIGN_OR_RETURN(transfer.destination,
                   At("destination", SideOf(shape, destinations, destination_cut, joined)));
  RETURN_IF_ERROR(CheckLimits(transfer, tensors.ItemBytesOf(Side::kSource, group)));
  return transfer;
}

}  // namespace

int64_t M2nSide::ranks() const { return Product(mesh); }

int64_t M2nSide::parts() const {
  for (size_t axis = 0; axis < mesh.size(); ++axis) {
    if (placements[axis] != kReplicate) return mesh[axis];
  }
  return 1;
}

int64_t M2nSide::PartOf(DeviceRank rank) const {
  const int64_t place = rank - first_rank;
  if (placements.front() != kReplicate) return place / (ranks() / mesh.front());
  return placements.back() != kReplicate ? place % mesh.back() : 0;
}

std::string ToString(const M2nSide& side) {
  const auto append_placement = [](std::string* out, int32_t dimension) {
    dimension == M2nSide::kReplicate ? absl::StrAppend(out, "-") : absl::StrAppend(out, dimension);
  };
  return absl::StrCat("mesh [", absl::StrJoin(side.mesh, ", "), "] from rank ", side.first_rank,
                      ", placements [", absl::StrJoin(side.placements, ", ", append_placement),
                      "], tiles [", absl::StrJoin(side.local_shape, ", "), "]");
}

absl::StatusOr<M2nTransfer> M2nTransferOf(const TensorTable& tensors, int32_t group) {
  return At(absl::StrCat(tensors.NameOf(group), " by NCCL M2N"), Describe(tensors, group));
}

}  // namespace crossmesh
