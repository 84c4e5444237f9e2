#include "common/plan/course_tables.h"

#include "common/base/status_macros.h"
#include "common/plan/own_summand.h"

#include <algorithm>
#include <set>
#include <string>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Where the elements of a local array are in a whole tensor, in the order of its memory: `base`,
// and loops over it, outermost first. Loops that are one are joined, so that equal ones are equal.
struct ElementWalk {
  struct Loop {
    int64_t length = 0;
    int64_t stride = 0;
    friend bool operator==(const Loop&, const Loop&) = default;
  };
  bool empty = false;
  int64_t base = 0;
  std::vector<Loop> loops;
  std::vector<Interval> summands;  // of each dimension of summands

  void Add(const Loop& loop) {
    if (loop.length == 1) return;
    if (!loops.empty() && loops.back().stride == loop.length * loop.stride) {
      loops.back() = {loops.back().length * loop.length, loop.stride};
    } else {
      loops.push_back(loop);
    }
  }
  friend bool operator==(const ElementWalk&, const ElementWalk&) = default;
};

struct TilePlace {
  const TensorTable& table;
  Side side;
  int32_t group;
  DeviceRank device;
};
// Of the tile of a whole tensor, or of a step's, with all slabs or with its own alone. A tile has
// one box at most.
absl::StatusOr<ElementWalk> WalkOf(const TilePlace& place, bool all_slabs) {
  const auto& [table, side, group, device] = place;
  const Tile tile = table.TileOf(side, group, device);
  if (tile.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a tile of one box, found ", tile.size()));
  }
  ElementWalk walk{.empty = tile.empty()};
  if (tile.empty()) return walk;
  const Shape& shape = table.groups()[group].shape;
  const Slab& slab = table.groups()[group].slab;
  std::vector<ElementWalk::Loop> inner_first;
  int64_t stride = 1;
  const auto pass_slabs = [&] {
    if (all_slabs) inner_first.push_back({.length = slab.slabs, .stride = stride});
    stride *= slab.slabs;
  };
  if (slab.row_dimension == shape.rank()) pass_slabs();
  for (int d = shape.rank() - 1; d >= slab.summand_dimensions; --d) {
    walk.base += tile[0][d].begin * stride;
    inner_first.push_back({.length = tile[0][d].length(), .stride = stride});
    stride *= shape.lengths()[d];
    if (d == slab.row_dimension) pass_slabs();
  }
  for (auto loop = inner_first.rbegin(); loop != inner_first.rend(); ++loop) walk.Add(*loop);
  for (int d = 0; d < slab.summand_dimensions; ++d) walk.summands.push_back(tile[0][d]);
  return walk;
}

int64_t ElementsOfWhole(const TensorGroup& group) {
  int64_t elements = group.slab.slabs;
  for (int d = group.slab.summand_dimensions; d < group.shape.rank(); ++d) {
    elements *= group.shape.lengths()[d];
  }
  return elements;
}

// The place of slabs in the whole tensor.
int64_t SlabStride(const TensorGroup& group) {
  int64_t stride = 1;
  for (int d = group.shape.rank() - 1; d >= group.slab.row_dimension; --d) {
    stride *= group.shape.lengths()[d];
  }
  return stride;
}

// One tensor of a course: its group in the whole table, and in that of each step.
using TensorGroups = std::vector<int32_t>;

class CourseProver {
 public:
  CourseProver(const TensorTable& whole, const CourseTables& course,
               std::span<const DeviceRank> devices)
      : whole_(whole), course_(course), devices_(devices) {}

  absl::Status Prove(std::vector<bool>& taken) {
    RETURN_IF_ERROR(CheckSizes());
    std::set<TensorGroups> known;
    RETURN_IF_ERROR(ProveCollectives());
    for (int32_t t = 0; t < TensorsOfInstance(); ++t) {
      RETURN_IF_ERROR(TakeSlabs(t, taken));
      for (int32_t i = 0; i < course_.instances; ++i) {
        TensorGroups groups = {whole_.group_of_tensor()[TensorOf(i, t)]};
        for (const CourseTables::Step& step : course_.steps) {
          groups.push_back(step.table->group_of_tensor()[t]);
        }
        if (!known.insert(groups).second) continue;
        RETURN_IF_ERROR(ProveGroups(t, groups));
      }
    }
    return absl::OkStatus();
  }

 private:
  int32_t TensorsOfInstance() const {
    return static_cast<int32_t>(course_.tensors.size()) / course_.instances;
  }
  int32_t TensorOf(int32_t instance, int32_t t) const {
    return course_.tensors[int64_t{instance} * TensorsOfInstance() + t];
  }

  absl::Status CheckSizes() const {
    if (course_.instances < 1 || course_.instances > kCourseInstancesMax || course_.buffers < 1 ||
        course_.buffers > course_.instances || course_.steps.empty() ||
        course_.steps.size() > kCourseStepsMax || course_.tensors.empty() ||
        course_.tensors.size() % course_.instances != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "expected instances, no more buffers than these, steps, and as many tensors for each "
          "instance; found ",
          course_.instances, ", ", course_.buffers, ", ", course_.steps.size(), " and ",
          course_.tensors.size(), " in all"));
    }
    const TensorTable& first = *course_.steps.front().table;
    for (size_t k = 0; k < course_.steps.size(); ++k) {
      const TensorTable& table = *course_.steps[k].table;
      const auto groups = table.group_of_tensor();
      if (std::ssize(groups) != TensorsOfInstance() ||
          std::ranges::find(groups, -1) != groups.end() || !table.conversions().empty() ||
          table.devices() != first.devices()) {
        return absl::InvalidArgumentError(
            absl::StrCat("step ", k, ": expected ", TensorsOfInstance(),
                         " tensors, none of them converted, on the devices of the first step"));
      }
    }
    for (const int32_t tensor : course_.tensors) {
      if (!IsIndexOf(tensor, whole_.group_of_tensor().size()) ||
          whole_.group_of_tensor()[tensor] < 0) {
        return absl::InvalidArgumentError(
            absl::StrCat("expected tensors that are moved, found ", tensor));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ProveCollectives() const {
    for (size_t k = 0; k < course_.steps.size(); ++k) {
      const CourseTables::Step& step = course_.steps[k];
      if (!step.collective.has_value()) continue;
      const std::optional<GroupedCollective> found =
          FindStepCollective(*step.table, step.reduction);
      const bool has_all = std::ranges::all_of(
          step.table->devices(),
          [this](const DeviceId& device) { return whole_.FindDevice(device).has_value(); });
      if (found.has_value() && found->kind == step.collective && has_all) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("step ", k, ": expected ", StepCollectiveName(*step.collective),
                       " in groups of devices of the plan, found ",
                       found.has_value() ? StepCollectiveName(found->kind) : "no collective",
                       has_all ? "" : ", with devices that are not in the plan"));
    }
    return absl::OkStatus();
  }

  // Takes the tensors that the instances have in place `t`, each with all its slabs.
  absl::Status TakeSlabs(int32_t t, std::vector<bool>& taken) const {
    const TensorTable& table = *course_.steps.front().table;
    const int64_t slabs = table.groups()[table.group_of_tensor()[t]].slab.slabs;
    absl::flat_hash_map<int32_t, absl::flat_hash_set<int64_t>> seen;
    for (int32_t i = 0; i < course_.instances; ++i) {
      if (seen[TensorOf(i, t)].insert(i % slabs).second) continue;
      return absl::InvalidArgumentError(absl::StrCat("tensor ", TensorOf(i, t), ", slab ",
                                                     i % slabs, ": expected once, found again"));
    }
    for (const auto& [tensor, seen_slabs] : seen) {
      if (taken[tensor] || std::ssize(seen_slabs) != slabs) {
        return absl::InvalidArgumentError(absl::StrCat(
            "tensor ", tensor, ": expected all of its ", slabs, " slabs in one place, found ",
            seen_slabs.size(), taken[tensor] ? ", and others elsewhere" : ""));
      }
      taken[tensor] = true;
    }
    return absl::OkStatus();
  }

  absl::Status ProveGroups(int32_t t, const TensorGroups& groups) const {
    RETURN_IF_ERROR(ProveRing(course_, t));
    const TensorGroup& whole = whole_.groups()[groups[0]];
    for (size_t k = 0; k < course_.steps.size(); ++k) {
      const TensorTable& table = *course_.steps[k].table;
      const TensorGroup& group = table.groups()[groups[k + 1]];
      const Slab& slab = group.slab;
      const bool is_last = k + 1 == course_.steps.size();
      const Slab& first = course_.steps[0].table->groups()[groups[1]].slab;
      if (group.type != whole.type || whole.sent_as.has_value() || slab.slabs != first.slabs ||
          ElementsOfWhole(group) != whole.shape.elements() ||
          SlabStride(group) != SlabStride(course_.steps[0].table->groups()[groups[1]]) ||
          slab.in_source != (k == 0 && slab.slabs > 1) ||
          slab.in_destination !=
              (is_last && slab.slabs > 1 && !course_.steps[k].reduction.has_value())) {
        return Error(t, k, "expected a slab of its type, in tiles with others at the ends alone");
      }
      RETURN_IF_ERROR(ProveReduction(t, k, group));
    }
    for (DeviceRank device = 0; device < std::ssize(whole_.devices()); ++device) {
      if (!devices_.empty() && !std::ranges::binary_search(devices_, device)) continue;
      RETURN_IF_ERROR(ProveDevice(t, groups, device));
    }
    return absl::OkStatus();
  }

  absl::Status ProveReduction(int32_t t, size_t k, const TensorGroup& group) const {
    const std::optional<Reduction>& reduction = course_.steps[k].reduction;
    if (!reduction.has_value()) return absl::OkStatus();
    if (group.slab.summand_dimensions < 1) return Error(t, k, "expected summands to reduce");
    return CheckReduction(group.type, *reduction);
  }

  absl::Status ProveDevice(int32_t t, const TensorGroups& groups, DeviceRank device) const {
    const DeviceId& name = whole_.devices()[device];
    const std::optional<DeviceRank> rank = course_.steps.front().table->FindDevice(name);
    ASSIGN_OR_RETURN(ElementWalk before, WalkOf({whole_, Side::kSource, groups[0], device}, true));
    ASSIGN_OR_RETURN(const ElementWalk last,
                     WalkOf({whole_, Side::kDestination, groups[0], device}, true));
    if (!rank.has_value()) {
      if (before.empty && last.empty) return absl::OkStatus();
      return Error(t, 0, "expected all devices that hold or need it", name);
    }
    for (size_t k = 0; k < course_.steps.size(); ++k) {
      const TensorTable& table = *course_.steps[k].table;
      const int32_t group = groups[k + 1];
      const bool is_first = k == 0;
      ASSIGN_OR_RETURN(ElementWalk from, WalkOf({table, Side::kSource, group, *rank}, is_first));
      // A tile holds one summand of each dimension, whichever it is.
      if (is_first) {
        for (const Interval& summand : from.summands) {
          if (summand.length() != 1) return Error(t, k, "expected one summand in a tile", name);
        }
        before.summands = from.summands;
      }
      if (from != before) {
        return Error(t, k,
                     is_first ? "expected to read what the source tile holds"
                              : "expected to read what the step before it left",
                     name);
      }
      const bool is_last = k + 1 == course_.steps.size();
      ASSIGN_OR_RETURN(before, WalkOf({table, Side::kDestination, group, *rank}, is_last));
      if (!course_.steps[k].reduction.has_value() || before.empty) continue;
      // Of a ring that goes on, what a tile has is told from others as a summand is.
      if (course_.steps[k].adds_own) {
        if (is_last || !course_.steps[k + 1].adds_own) before.summands.clear();
        continue;
      }
      // What is left are dimensions of which a tile has one summand.
      const std::span<const int64_t> lengths = table.groups()[group].shape.lengths();
      std::vector<Interval> left;
      for (size_t d = 0; d < before.summands.size(); ++d) {
        if (before.summands[d].length() == 1 && lengths[d] > 1) {
          left.push_back(before.summands[d]);
        } else if (before.summands[d].length() != lengths[d]) {
          return Error(t, k, "expected all summands, or one, of each dimension", name);
        }
      }
      if (left.size() == before.summands.size()) {
        return Error(t, k, "expected summands to reduce", name);
      }
      before.summands = std::move(left);
    }
    for (const Interval& summand : before.summands) {
      if (summand.length() != 1) {
        return Error(t, course_.steps.size() - 1, "expected one summand in a tile", name);
      }
    }
    before.summands.clear();
    if (before == last) return absl::OkStatus();
    return Error(t, course_.steps.size() - 1, "expected to fill the destination tile", name);
  }

  static absl::Status Error(int32_t t, size_t step, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("step ", step, ", tensor ", t, ": ", what));
  }
  static absl::Status Error(int32_t t, size_t step, absl::string_view what,
                            const DeviceId& device) {
    return absl::InvalidArgumentError(
        absl::StrCat("step ", step, ", tensor ", t, ", device ", ToString(device), ": ", what));
  }

  const TensorTable& whole_;
  const CourseTables& course_;
  const std::span<const DeviceRank> devices_;
};

}  // namespace

absl::Status ProveCourses(const TensorTable& whole, std::span<const CourseTables> courses,
                          std::span<const DeviceRank> devices) {
  std::vector<bool> taken(whole.group_of_tensor().size(), false);
  for (size_t c = 0; c < courses.size(); ++c) {
    const absl::Status status = CourseProver(whole, courses[c], devices).Prove(taken);
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("course ", c, ": ", status.message()));
    }
  }
  for (size_t t = 0; t < taken.size(); ++t) {
    if (taken[t] || whole.group_of_tensor()[t] < 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("courses: expected one with tensor ", t, ", found none"));
  }
  return absl::OkStatus();
}

CourseMemory::CourseMemory(const CourseTables& course, const DeviceId& device)
    : arrays_(2 * course.steps.size()) {
  std::vector<StorageLayout*> in_order;
  const auto add = [&](size_t step, Array array, const TensorTable& table, Side side) {
    const std::optional<DeviceRank> rank = table.FindDevice(device);
    if (!rank.has_value()) return;
    std::optional<StorageLayout>& added = arrays_[2 * step + static_cast<size_t>(array)];
    added = LayOut(table, side, *rank);
    in_order.push_back(&*added);
  };
  for (size_t k = 0; k < course.steps.size(); ++k) {
    const bool is_last = k + 1 == course.steps.size();
    const bool reduces = course.steps[k].reduction.has_value();
    const bool has_summands = reduces && !course.steps[k].collective.has_value();
    if (reduces ? has_summands : !is_last)
      add(k, Array::kMoved, *course.steps[k].table, Side::kDestination);
    if (!is_last && reduces) add(k, Array::kReduced, *course.steps[k + 1].table, Side::kSource);
  }
  // Of one instance only two arrays are in use at a time: they take turns at both ends.
  const bool takes_turns = course.instances == 1;
  for (size_t i = 0; i < in_order.size(); ++i) {
    const int64_t before = i == 0 ? 0 : in_order[i - 1]->bytes;
    buffer_bytes_ = takes_turns ? std::max(buffer_bytes_, before + in_order[i]->bytes)
                                : buffer_bytes_ + in_order[i]->bytes;
  }
  int64_t next = 0;
  for (size_t i = 0; i < in_order.size(); ++i) {
    const int64_t bytes = in_order[i]->bytes;
    const int64_t begin = !takes_turns ? next : i % 2 == 0 ? 0 : buffer_bytes_ - bytes;
    for (int64_t& offset : in_order[i]->offset_of_tensor) {
      if (offset >= 0) offset += begin;
    }
    next += bytes;
  }
  bytes_ = buffer_bytes_ * course.buffers;
}

const StorageLayout* CourseMemory::Find(int32_t step, Array array) const {
  const size_t place = 2 * static_cast<size_t>(step) + static_cast<size_t>(array);
  const std::optional<StorageLayout>& found = arrays_[place];
  return found.has_value() ? &*found : nullptr;
}

TileRows RowsOf(const TensorTable& table, Side side, int32_t group, DeviceRank device) {
  const Tile tile = table.TileOf(side, group, device);
  if (tile.empty()) return {};
  const TensorGroup& of = table.groups()[group];
  TileRows rows{.bytes = ItemBytes(of.type), .row_bytes = ItemBytes(of.type)};
  for (int d = 0; d < of.shape.rank(); ++d) {
    (d < of.slab.summand_dimensions ? rows.summands : rows.bytes) *= tile[0][d].length();
    if (d >= of.slab.row_dimension) rows.row_bytes *= tile[0][d].length();
  }
  return rows;
}

}  // namespace crossmesh
