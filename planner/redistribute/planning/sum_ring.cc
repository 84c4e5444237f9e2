#include "planner/redistribute/planning/sum_ring.h"

#include "common/base/status_macros.h"
#include "common/mesh/box.h"
#include "common/mesh/data_type.h"
#include "common/mesh/layout.h"
#include "common/mesh/reduction.h"
#include "common/mesh/shape.h"
#include "common/plan/own_summand.h"
#include "planner/redistribute/planning/collective_choice.h"
#include "planner/redistribute/planning/course_prediction.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <absl/container/inlined_vector.h>

namespace crossmesh {
namespace {

constexpr int64_t kHostsMin = 3;
constexpr int64_t kHostsMax = kCourseStepsMax + 1;

// Ten times what an instance of a step costs a worker besides its bytes (docs/redistribution.md).
constexpr double kRoundSecondsMin = 1e-3;
// Of the prediction without a ring.
constexpr double kRatioMax = 1.05;

// The tiles of a step's tensors that are alike, as a ring has them: by slot.
class RingTiles {
 public:
  // Nothing where the step is no ring's to make.
  static std::optional<RingTiles> Find(const TensorTable& table, int32_t group) {
    const Placement& source = table.PlacementOf(Side::kSource, group);
    const Placement& destination = table.PlacementOf(Side::kDestination, group);
    if (source.mesh != destination.mesh) return std::nullopt;
    const TensorGroup& of = table.groups()[group];
    const std::vector<Tile> held = source.layout.Tiles(source.mesh, of.shape);
    const std::vector<Tile> kept = destination.layout.Tiles(destination.mesh, of.shape);
    RingTiles tiles(of);
    for (size_t slot = 0; slot < held.size(); ++slot) {
      if (held[slot].size() != 1 || kept[slot].size() != 1) return std::nullopt;
      tiles.summands_.push_back(held[slot][0]);
      tiles.pieces_.push_back(kept[slot][0]);
    }
    if (!tiles.HaveOneSummandEach() || !tiles.ArePiecesOfAll()) return std::nullopt;
    return tiles;
  }

  // What a round leaves at each device: its piece, and the summand that it began with. After the
  // last one everything is where it is kept.
  ExplicitLayout After(int64_t round) const {
    ExplicitLayout layout;
    const auto hosts = std::ssize(pieces_);
    for (int64_t slot = 0; slot < hosts; ++slot) {
      // It began at the device after the one that keeps it.
      const int64_t begun = (slot - round - 1 + hosts) % hosts;
      const Box& piece = pieces_[(begun - 1 + hosts) % hosts];
      absl::InlinedVector<Interval, 4> box = piece.intervals();
      std::copy_n(summands_[begun].intervals().begin(), dimensions_, box.begin());
      layout.slots.push_back({Box(std::move(box))});
    }
    return layout;
  }

 private:
  explicit RingTiles(const TensorGroup& group)
      : dimensions_(group.slab.summand_dimensions), shape_(group.shape) {}

  // And all of it, so that there are no other ones.
  bool HaveOneSummandEach() const {
    std::set<std::vector<int64_t>> numbers;
    int64_t volume = 0;
    for (const Box& box : summands_) {
      std::vector<int64_t> number;
      for (int d = 0; d < dimensions_; ++d) {
        if (box[d].length() != 1) return false;
        number.push_back(box[d].begin);
      }
      numbers.insert(std::move(number));
      volume += box.volume();
    }
    return numbers.size() == summands_.size() && volume == shape_.elements();
  }

  bool ArePiecesOfAll() const {
    return std::ranges::all_of(pieces_, [this](const Box& piece) {
      return HasAllSummands(piece) && piece.volume() * std::ssize(pieces_) == shape_.elements() &&
             std::ranges::count_if(pieces_, [&](const Box& other) {
               return Intersect(piece, other).has_value();
             }) == 1;
    });
  }

  bool HasAllSummands(const Box& piece) const {
    for (int d = 0; d < dimensions_; ++d) {
      if (piece[d].length() != shape_[d]) return false;
    }
    return true;
  }

  int32_t dimensions_;  // of summands
  Shape shape_;
  std::vector<Box> summands_;
  std::vector<Box> pieces_;
};

// The tables of a ring's steps.
class RingTables {
 public:
  RingTables(const TensorTable& table, int64_t rounds) : table_(table), specs_(rounds) {
    for (TensorTable::Spec& spec : specs_) {
      spec.group_of_tensor = table.spec().group_of_tensor;
      spec.manifest = table.manifest();
    }
  }

  void Add(int32_t group, const RingTiles& tiles) {
    const Placement& held = table_.PlacementOf(Side::kSource, group);
    for (int64_t round = 0; round < std::ssize(specs_); ++round) {
      TensorTable::Spec& spec = specs_[round];
      TensorGroup of = table_.groups()[group];
      of.source = of.destination = static_cast<int32_t>(spec.groups.size());
      of.slab.in_source &= round == 0;
      spec.sources.push_back(round == 0 ? held
                                        : Placement{held.mesh, Layout(tiles.After(round - 1))});
      spec.destinations.push_back({held.mesh, Layout(tiles.After(round))});
      spec.groups.push_back(std::move(of));
    }
  }

  absl::StatusOr<std::vector<TensorTable>> Take() {
    std::vector<TensorTable> tables;
    for (TensorTable::Spec& spec : specs_) {
      ASSIGN_OR_RETURN(TensorTable table, TensorTable::Create(std::move(spec)));
      tables.push_back(std::move(table));
    }
    return tables;
  }

 private:
  const TensorTable& table_;
  std::vector<TensorTable::Spec> specs_;
};

// Devices of as many hosts, which all tensors have in one order.
bool IsOfOneRing(const TensorTable& table) {
  const auto count = std::ssize(table.devices());
  if (count < kHostsMin || count > kHostsMax || std::ssize(table.hosts()) != count) return false;
  const std::vector<DeviceId>& ring = table.PlacementOf(Side::kSource, 0).mesh.devices();
  for (int32_t group = 0; group < std::ssize(table.groups()); ++group) {
    if (table.PlacementOf(Side::kSource, group).mesh.devices() != ring) return false;
  }
  return std::ssize(ring) == count;
}

// Unless the order is given, or sums would be rounded on their way.
bool MayRoundRing(DataType type, const Reduction& reduction, absl::string_view order) {
  if (reduction.kind != ReductionKind::kSum) return true;
  switch (type) {
    case DataType::kF16:
    case DataType::kBF16:
    case DataType::kF8E4M3:
    case DataType::kF8E5M2:
    case DataType::kBool:
      return false;
    case DataType::kF32:
    case DataType::kF64:
      return order != kFixedReductionOrder;
    case DataType::kU8:
    case DataType::kI8:
    case DataType::kU16:
    case DataType::kI16:
    case DataType::kU32:
    case DataType::kI32:
    case DataType::kU64:
    case DataType::kI64:
      return true;
  }
  return false;
}

// Whether each device can add its own summands of what a step brings it in long runs.
bool HasLongRuns(const TensorTable& first, const TensorTable& step, int64_t run_elements) {
  std::set<int32_t> known;  // groups, of which one tensor says all
  for (int32_t t = 0; t < std::ssize(step.group_of_tensor()); ++t) {
    const int32_t group = step.group_of_tensor()[t];
    if (!known.insert(group).second) continue;
    for (DeviceRank device = 0; device < std::ssize(step.devices()); ++device) {
      const std::optional<OwnSummand> own = FindOwnSummand(first, step, t, device);
      if (!own.has_value()) return false;
      const bool is_one_run = own->pitch == own->run_bytes;
      if (!is_one_run && own->run_bytes < run_elements * ItemBytes(step.groups()[group].type)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<std::optional<Course<StepTable>>> DraftSumRing(const Course<StepTable>& draft,
                                                              absl::string_view reduction_order,
                                                              int64_t run_elements) {
  const Course<StepTable>::Step& step = draft.steps.front();
  const TensorTable& table = step.move->tensors();
  const auto hosts = std::ssize(table.hosts());
  if (!step.reduction.has_value() || !IsOfOneRing(table)) return std::nullopt;
  RingTables tables(table, hosts - 1);
  for (int32_t group = 0; group < std::ssize(table.groups()); ++group) {
    const std::optional<RingTiles> tiles = RingTiles::Find(table, group);
    if (!tiles.has_value() ||
        !MayRoundRing(table.groups()[group].type, *step.reduction, reduction_order)) {
      return std::nullopt;
    }
    tables.Add(group, *tiles);
  }
  ASSIGN_OR_RETURN(std::vector<TensorTable> rounds, tables.Take());
  Course<StepTable> ring = draft;
  ring.steps.erase(ring.steps.begin());
  std::vector<Course<StepTable>::Step> steps;
  for (TensorTable& of_round : rounds) {
    if (!HasLongRuns(table, of_round, run_elements)) return std::nullopt;
    steps.push_back({.move = std::make_shared<const StepTable>(
                         StepTable{std::make_shared<const TensorTable>(std::move(of_round))}),
                     .reduction = Reduction{.kind = step.reduction->kind},
                     .adds_own = true});
  }
  // A mean is divided once.
  steps.back().reduction = step.reduction;
  ring.steps.insert(ring.steps.begin(), steps.begin(), steps.end());
  return ring;
}

bool HasLongRounds(const Course<Plan>& at_once) {
  const Plan& step = *at_once.steps.front().move;
  const auto rounds = std::ssize(step.tensors().hosts()) - 1;
  return step.figures().predicted_seconds >= kRoundSecondsMin * static_cast<double>(rounds);
}

bool IsRingWorthIt(const Course<Plan>& ring, const Course<Plan>& at_once, const TensorTable& whole,
                   const HostNetwork& network) {
  const auto seconds = [&](const Course<Plan>& course) {
    return PredictCourses(whole, {&course, 1}, network).seconds;
  };
  return seconds(ring) <= kRatioMax * seconds(at_once);
}

}  // namespace crossmesh
