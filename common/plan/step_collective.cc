#include "common/plan/step_collective.h"

#include "common/mesh/box.h"
#include "common/mesh/data_type.h"
#include "common/mesh/layout.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

namespace crossmesh {
namespace {

// One dimension of a box after the other.
using Ranges = std::vector<Interval>;

bool NcclAdds(DataType type) {
  switch (type) {
    case DataType::kBool:
    case DataType::kF8E5M2:
    case DataType::kF8E4M3:
    case DataType::kI16:
    case DataType::kU16:
      return false;
    case DataType::kU8:
    case DataType::kI8:
    case DataType::kI32:
    case DataType::kU32:
    case DataType::kI64:
    case DataType::kU64:
    case DataType::kF16:
    case DataType::kBF16:
    case DataType::kF32:
    case DataType::kF64:
      return true;
  }
  return false;
}

bool IsFloating(DataType type) {
  return type == DataType::kF16 || type == DataType::kBF16 || type == DataType::kF32 ||
         type == DataType::kF64;
}

int64_t ElementsOf(std::span<const Interval> ranges) {
  int64_t elements = 1;
  for (const Interval& range : ranges) elements *= range.length();
  return elements;
}

// Which of the equal parts of `whole` that lie one after the other in its memory a box is; nothing
// where it is none.
std::optional<int64_t> PieceNumber(std::span<const Interval> box, std::span<const Interval> whole) {
  const int64_t elements = ElementsOf(box);
  int64_t offset = 0;
  int64_t stride = 1;
  bool is_cut = false;  // further in
  for (size_t d = whole.size(); d-- > 0;) {
    if (box[d].begin < whole[d].begin || box[d].end > whole[d].end) return std::nullopt;
    if (is_cut && box[d].length() != 1) return std::nullopt;
    is_cut |= box[d] != whole[d];
    offset += (box[d].begin - whole[d].begin) * stride;
    stride *= whole[d].length();
  }
  if (offset % elements != 0 || stride % elements != 0) return std::nullopt;
  return offset / elements;
}

// Devices that bring parts of the same, each by the number of its part, dealt out to groups.
class PartsOfWhole {
 public:
  // Whether `number` is one of `parts`, of which all others of the whole are.
  bool Add(int64_t number, int64_t parts, DeviceRank device) {
    if (holders_.empty()) holders_.resize(parts);
    if (std::ssize(holders_) != parts || number < 0 || number >= parts) return false;
    holders_[number].push_back(device);
    return true;
  }

  // Appends groups of one holder of each part, in their order; false where some have more holders.
  bool DealOut(std::vector<std::vector<DeviceRank>>& groups) const {
    const size_t holders = holders_.front().size();
    for (size_t j = 0; j < holders; ++j) {
      std::vector<DeviceRank>& group = groups.emplace_back();
      for (const std::vector<DeviceRank>& of_part : holders_) {
        if (of_part.size() != holders) return false;
        group.push_back(of_part[j]);
      }
    }
    return holders > 0;
  }

 private:
  std::vector<std::vector<DeviceRank>> holders_;  // by part, ascending
};

// What the devices have of the tensors of a group, before a step and after it.
class EndsOfGroup {
 public:
  EndsOfGroup(const TensorTable& table, int32_t group) : group_(table.groups()[group]) {
    for (DeviceRank device = 0; device < std::ssize(table.devices()); ++device) {
      const Tile before = table.TileOf(Side::kSource, group, device);
      const Tile after = table.TileOf(Side::kDestination, group, device);
      if (before.empty() && after.empty()) continue;
      devices_[device] = {.before = RangesOf(before), .after = RangesOf(after)};
    }
  }

  std::optional<GroupedCollective> Find(const std::optional<Reduction>& reduction) const {
    const bool are_boxes = std::ranges::all_of(devices_, [](const auto& entry) {
      return !entry.second.before.empty() && !entry.second.after.empty();
    });
    if (devices_.empty() || !are_boxes || group_.slab.slabs != 1 || group_.sent_as.has_value()) {
      return std::nullopt;
    }
    std::optional<GroupedCollective> found =
        reduction.has_value() ? FindReducing(*reduction) : FindGather();
    if (!found.has_value() || found->ranks() < 2) return std::nullopt;
    const bool are_alike = std::ranges::all_of(
        found->groups, [&](const auto& group) { return std::ssize(group) == found->ranks(); });
    std::ranges::sort(found->groups);
    return are_alike ? found : std::nullopt;
  }

 private:
  struct Ends {
    Ranges before;
    Ranges after;
  };

  // Of a tile of one box; else nothing.
  static Ranges RangesOf(const Tile& tile) {
    if (tile.size() != 1 || tile[0].empty()) return {};
    Ranges ranges;
    for (int d = 0; d < tile[0].rank(); ++d) ranges.push_back(tile[0][d]);
    return ranges;
  }
  std::span<const Interval> SummandsOf(const Ranges& ranges) const {
    return std::span(ranges).first(group_.slab.summand_dimensions);
  }
  std::span<const Interval> ElementsIn(const Ranges& ranges) const {
    return std::span(ranges).subspan(group_.slab.summand_dimensions);
  }

  std::optional<GroupedCollective> FindGather() const {
    std::map<Bounds, PartsOfWhole> wholes;
    for (const auto& [device, ends] : devices_) {
      const std::optional<int64_t> number = PieceNumber(ends.before, ends.after);
      const int64_t pieces = ElementsOf(ends.after) / ElementsOf(ends.before);
      if (!number.has_value() || !wholes[BoundsOf(ends.after)].Add(*number, pieces, device)) {
        return std::nullopt;
      }
    }
    return DealtOut(StepCollective::kAllGather, wholes);
  }

  // Every device brings another summand of the same elements.
  std::optional<GroupedCollective> FindReducing(const Reduction& reduction) const {
    std::map<Bounds, PartsOfWhole> wholes;
    for (const auto& [device, ends] : devices_) {
      const std::span<const Interval> all = SummandsOf(ends.after);
      const std::span<const Interval> own = SummandsOf(ends.before);
      const std::optional<int64_t> number = PieceNumber(own, all);
      Bounds whole = BoundsOf(ElementsIn(ends.before));
      for (const int64_t bound : BoundsOf(all)) whole.push_back(bound);
      if (ElementsOf(own) != 1 || !number.has_value() ||
          !wholes[whole].Add(*number, ElementsOf(all), device)) {
        return std::nullopt;
      }
    }
    std::optional<GroupedCollective> found = DealtOut(StepCollective::kAllReduce, wholes);
    if (!found.has_value() || !NcclReduces(reduction, group_.type, found->ranks())) {
      return std::nullopt;
    }
    const bool goes_to_all = std::ranges::all_of(devices_, [this](const auto& entry) {
      return std::ranges::equal(ElementsIn(entry.second.before), ElementsIn(entry.second.after));
    });
    for (std::vector<DeviceRank>& group : found->groups) {
      if (goes_to_all) {
        std::ranges::sort(group);
      } else if (!SortByPiece(group)) {
        return std::nullopt;
      }
    }
    if (!goes_to_all) found->kind = StepCollective::kReduceScatter;
    return found;
  }

  // Of a group of as many devices as there are pieces, each of which is to get another one.
  bool SortByPiece(std::vector<DeviceRank>& group) const {
    std::map<int64_t, DeviceRank> by_piece;
    for (const DeviceRank device : group) {
      const Ends& ends = devices_.at(device);
      const std::span<const Interval> whole = ElementsIn(ends.before);
      const std::span<const Interval> piece = ElementsIn(ends.after);
      const std::optional<int64_t> number = PieceNumber(piece, whole);
      if (!number.has_value() || ElementsOf(piece) * std::ssize(group) != ElementsOf(whole)) {
        return false;
      }
      by_piece[*number] = device;
    }
    if (by_piece.size() != group.size()) return false;
    std::ranges::copy(by_piece | std::views::values, group.begin());
    return true;
  }

  // What orders ranges.
  using Bounds = std::vector<int64_t>;
  static Bounds BoundsOf(std::span<const Interval> ranges) {
    Bounds bounds;
    for (const Interval& range : ranges) bounds.insert(bounds.end(), {range.begin, range.end});
    return bounds;
  }

  static std::optional<GroupedCollective> DealtOut(StepCollective kind,
                                                   const std::map<Bounds, PartsOfWhole>& wholes) {
    GroupedCollective dealt{.kind = kind, .groups = {}};
    for (const auto& [bounds, parts] : wholes) {
      if (!parts.DealOut(dealt.groups)) return std::nullopt;
    }
    return dealt;
  }

  const TensorGroup& group_;
  std::map<DeviceRank, Ends> devices_;  // those that have or get something
};

}  // namespace

bool NcclReduces(const Reduction& reduction, DataType type, int64_t summands) {
  const bool is_mean = reduction.divisor == summands && IsFloating(type);
  return reduction.kind == ReductionKind::kSum && (reduction.divisor == 1 || is_mean) &&
         NcclAdds(type);
}

absl::string_view StepCollectiveName(StepCollective collective) {
  // In the order of StepCollective.
  constexpr absl::string_view kNames[] = {"all-gather", "reduce-scatter", "all-reduce"};
  static_assert(std::size(kNames) == static_cast<size_t>(StepCollective::kAllReduce) + 1);
  return kNames[static_cast<size_t>(collective)];
}

const std::vector<DeviceRank>* GroupedCollective::GroupOf(DeviceRank device) const {
  for (const std::vector<DeviceRank>& group : groups) {
    if (std::ranges::count(group, device) > 0) return &group;
  }
  return nullptr;
}

std::optional<GroupedCollective> FindStepCollective(const TensorTable& table,
                                                    const std::optional<Reduction>& reduction) {
  std::optional<GroupedCollective> found;
  for (int32_t group = 0; group < std::ssize(table.groups()); ++group) {
    if (table.tensors_in_group(group) == 0) continue;
    std::optional<GroupedCollective> of_group = EndsOfGroup(table, group).Find(reduction);
    if (!of_group.has_value() || (found.has_value() && found != of_group)) return std::nullopt;
    found = std::move(of_group);
  }
  return found;
}

}  // namespace crossmesh
