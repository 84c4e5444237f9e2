#include "common/plan/own_summand.h"

#include "common/base/status_macros.h"
#include "common/mesh/box.h"
#include "common/mesh/data_type.h"
#include "common/mesh/device.h"
#include "common/plan/course.h"

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

// So many bytes apart lie so many equal parts of a piece.
struct PieceLoop {
  int64_t length = 1;
  int64_t stride = 0;
};

bool AddsOwn(const CourseTables::Step& step) { return step.adds_own; }

class RingProver {
 public:
  RingProver(const CourseTables& course, int32_t tensor)
      : steps_(course.steps), releases_source_(course.releases_source), tensor_(tensor) {}

  absl::Status Prove() {
    while (count_ < steps_.size() && steps_[count_].adds_own) ++count_;
    RETURN_IF_ERROR(CheckSteps());
    if (count_ == 0) return absl::OkStatus();
    RETURN_IF_ERROR(FindSummands());
    for (size_t k = 0; k < count_; ++k) RETURN_IF_ERROR(Pass(k));
    const size_t last = count_ - 1;
    for (DeviceRank device = 0; device < devices(); ++device) {
      if (TileOf(last, Side::kDestination, device).empty()) continue;
      const size_t found = sums_[device].count();
      if (std::cmp_equal(found, summands_)) continue;
      return Error(last, device, "the summands of all ", summands_, ", found ", found);
    }
    return absl::OkStatus();
  }

 private:
  // Of a ring as long as a course may be.
  using Summands = std::bitset<kCourseStepsMax + 1>;

  absl::Status CheckSteps() const {
    for (size_t k = 0; k < steps_.size(); ++k) {
      const CourseTables::Step& step = steps_[k];
      if (!step.adds_own) continue;
      if (k >= count_) return Error(k, "steps that add own summands before all others");
      if (releases_source_) return Error(k, "a source that stays, found one that is released");
      if (!step.reduction.has_value() || step.collective.has_value()) {
        return Error(k, "a reduction, and no collective, where own summands are added");
      }
      if (step.reduction->kind != steps_[0].reduction->kind ||
          (k + 1 < count_ && step.reduction->divisor != 1)) {
        return Error(k, "one kind of reduction round a ring, which divides at its end");
      }
      const TensorGroup& group = GroupOf(k);
      const TensorGroup& first = GroupOf(0);
      if (group.shape != first.shape ||
          group.slab.summand_dimensions != first.slab.summand_dimensions ||
          group.slab.row_dimension != first.slab.row_dimension) {
        return Error(k, "the shape and the rows of the first step, where own summands are added");
      }
    }
    return absl::OkStatus();
  }

  // What each device has before the first step.
  absl::Status FindSummands() {
    const TensorGroup& group = GroupOf(0);
    for (int d = 0; d < group.slab.summand_dimensions; ++d) {
      summands_ *= group.shape[d];
      if (summands_ > kCourseStepsMax + 1) break;
    }
    if (summands_ > kCourseStepsMax + 1 || devices() > kCourseStepsMax + 1) {
      return Error(0, absl::StrCat("a ring of at most ", kCourseStepsMax + 1, " summands"));
    }
    own_.resize(devices());
    sums_.resize(devices());
    for (DeviceRank device = 0; device < devices(); ++device) {
      const Tile tile = TileOf(0, Side::kSource, device);
      if (tile.size() != 1 || !HasOneSummand(tile[0])) continue;
      int64_t number = 0;
      for (int d = 0; d < group.slab.summand_dimensions; ++d) {
        number = number * group.shape[d] + tile[0][d].begin;
      }
      own_[device] = number;
      sums_[device].set(number);
    }
    return absl::OkStatus();
  }

  absl::Status Pass(size_t k) {
    std::vector<Tile> held;
    for (DeviceRank device = 0; device < devices(); ++device) {
      held.push_back(TileOf(k, Side::kSource, device));
    }
    std::vector<Summands> after(devices());
    for (DeviceRank device = 0; device < devices(); ++device) {
      const Tile piece = TileOf(k, Side::kDestination, device);
      if (piece.empty()) continue;
      if (piece.size() != 1 || !HasOneSummand(piece[0])) {
        return Error(k, device, "one summand, or one sum, in a tile");
      }
      const std::optional<DeviceRank> holder = HolderOf(held, piece[0]);
      if (!holder.has_value()) return Error(k, device, "what one device has, and no other one");
      if (!own_[device].has_value() ||
          !FindOwnSummand(*steps_[0].table, *steps_[k].table, tensor_, device).has_value()) {
        return Error(k, device, "its own summand of the piece, in runs of its source tile");
      }
      after[device] = sums_[*holder];
      if (after[device].test(*own_[device])) {
        return Error(k, device, "a sum without its own summand, found one that has it");
      }
      after[device].set(*own_[device]);
    }
    sums_ = std::move(after);
    return absl::OkStatus();
  }

  // The device that has all of a box; nothing when others have parts of it, or none has.
  static std::optional<DeviceRank> HolderOf(const std::vector<Tile>& held, const Box& box) {
    std::optional<DeviceRank> holder;
    for (DeviceRank device = 0; device < std::ssize(held); ++device) {
      for (const Box& of_device : held[device]) {
        if (!Intersect(of_device, box).has_value()) continue;
        if (holder.has_value() || !of_device.Contains(box)) return std::nullopt;
        holder = device;
      }
    }
    return holder;
  }

  bool HasOneSummand(const Box& box) const {
    const int32_t dimensions = GroupOf(0).slab.summand_dimensions;
    return std::all_of(box.intervals().begin(), box.intervals().begin() + dimensions,
                       [](const Interval& summand) { return summand.length() == 1; });
  }
  const TensorGroup& GroupOf(size_t k) const {
    return steps_[k].table->groups()[steps_[k].table->group_of_tensor()[tensor_]];
  }
  Tile TileOf(size_t k, Side side, DeviceRank device) const {
    return steps_[k].table->TileOf(side, steps_[k].table->group_of_tensor()[tensor_], device);
  }
  DeviceRank devices() const {
    return static_cast<DeviceRank>(std::ssize(steps_[0].table->devices()));
  }

  absl::Status Error(size_t step, absl::string_view expected) const {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", step, ", tensor ", tensor_, ": expected ", expected));
  }
  template <typename... Expected>
  absl::Status Error(size_t step, DeviceRank device, const Expected&... expected) const {
    return absl::InvalidArgumentError(absl::StrCat("step ", step, ", tensor ", tensor_, ", device ",
                                                   ToString(steps_[0].table->devices()[device]),
                                                   ": expected ", expected...));
  }

  const std::span<const CourseTables::Step> steps_;
  const bool releases_source_;
  const int32_t tensor_;
  size_t count_ = 0;  // of steps that add own summands
  int64_t summands_ = 1;
  std::vector<std::optional<int64_t>> own_;  // [device]: the number of its summand
  std::vector<Summands> sums_;               // [device]: what what it has is the sum of
};

}  // namespace

std::optional<OwnSummand> FindOwnSummand(const TensorTable& first, const TensorTable& step,
                                         int32_t tensor, DeviceRank device) {
  const int32_t in_first = first.group_of_tensor()[tensor];
  const int32_t in_step = step.group_of_tensor()[tensor];
  const TensorGroup& group = first.groups()[in_first];
  const Tile tile = first.TileOf(Side::kSource, in_first, device);
  const Tile piece = step.TileOf(Side::kDestination, in_step, device);
  if (tile.size() != 1 || piece.size() != 1 || group.shape != step.groups()[in_step].shape) {
    return std::nullopt;
  }
  OwnSummand own{.run_bytes = ItemBytes(group.type)};
  std::vector<PieceLoop> loops = {{.stride = own.run_bytes}};  // innermost first
  int64_t stride = own.run_bytes;
  for (int d = group.shape.rank() - 1; d >= group.slab.summand_dimensions; --d) {
    const Interval& of_piece = piece[0][d];
    const Interval& of_tile = tile[0][d];
    if (Intersect(of_piece, of_tile) != of_piece) return std::nullopt;
    // Rows of other slabs lie between.
    if (d + 1 == group.slab.row_dimension) stride *= group.slab.RowPitch(Side::kSource);
    own.first += (of_piece.begin - of_tile.begin) * stride;
    if (of_piece.length() > 1) {
      if (loops.back().length * loops.back().stride == stride) {
        loops.back().length *= of_piece.length();
      } else {
        loops.push_back({.length = of_piece.length(), .stride = stride});
      }
    }
    stride *= of_tile.length();
  }
  if (loops.size() > 2) return std::nullopt;
  own.run_bytes *= loops.front().length;
  own.pitch = loops.size() == 2 ? loops.back().stride : own.run_bytes;
  return own;
}

std::optional<int64_t> FindOwnIndex(const TensorTable& first, int32_t tensor, DeviceRank device) {
  const int32_t group = first.group_of_tensor()[tensor];
  const Tile tile = first.TileOf(Side::kSource, group, device);
  const Tile piece = first.TileOf(Side::kDestination, group, device);
  if (tile.size() != 1 || piece.size() != 1) return std::nullopt;
  int64_t index = 0;
  for (int d = 0; d < first.groups()[group].slab.summand_dimensions; ++d) {
    const Interval& of_tile = tile[0][d];
    const Interval& of_piece = piece[0][d];
    if (of_tile.length() != 1 || Intersect(of_tile, of_piece) != of_tile) return std::nullopt;
    index = index * of_piece.length() + of_tile.begin - of_piece.begin;
  }
  return index;
}

absl::Status ProveRing(const CourseTables& course, int32_t tensor) {
  return RingProver(course, tensor).Prove();
}

absl::Status ProveOwnSummandsStay(std::span<const CourseTables> courses, BindingMode binding,
                                  bool shared_storage) {
  if (binding != BindingMode::kInPlace || !shared_storage) return absl::OkStatus();
  for (const CourseTables& course : courses) {
    if (std::ranges::none_of(course.steps, AddsOwn)) continue;
    return absl::FailedPreconditionError(
        "sums round a ring: expected a source that the destination does not take the place of, "
        "found binding in_place of one storage");
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
