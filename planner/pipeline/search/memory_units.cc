#include "planner/pipeline/search/memory_units.h"

#include "planner/pipeline/memory.h"

#include <algorithm>
#include <numeric>

namespace crossmesh {

MemoryUnits::MemoryUnits(const PipelineProfile& profile, int32_t microbatches, BackwardForm form)
    : profile_(profile),
      microbatches_(microbatches),
      form_(form),
      room_(RoomForActivations(profile)),
      part_of_(profile.stages.size()) {
  std::iota(part_of_.begin(), part_of_.end(), 0);
  bool has_changed = true;
  while (has_changed) {
    has_changed = false;
    for (const EdgeProfile& edge : profile.edges) {
      const int32_t part = std::min(part_of_[edge.from], part_of_[edge.to]);
      has_changed |= part_of_[edge.from] != part_of_[edge.to];
      part_of_[edge.from] = part_of_[edge.to] = part;
    }
  }
  parts_ = part_of_;
  std::ranges::sort(parts_);
  const auto repeated = std::ranges::unique(parts_);
  parts_.erase(repeated.begin(), repeated.end());
}

ByteCount MemoryUnits::HeldBy(const std::vector<MicrobatchIndex>& done, StageIndex s,
                              MicrobatchIndex m) const {
  const StageProfile& stage = profile_.stages[s];
  const MicrobatchIndex* of_stage = &done[s * kOpKinds];
  ByteCount held;
  if (m >= of_stage[1]) held += stage.input_gradient_bytes;
  if (m >= of_stage[form_ == BackwardForm::kFull ? 1 : 2]) held += stage.weight_gradient_bytes;
  return held;
}

MemoryUnits::Unit MemoryUnits::UnitOf(const std::vector<MicrobatchIndex>& done, int32_t part,
                                      MicrobatchIndex m) const {
  Unit unit{.held = std::vector<ByteCount>(profile_.ranks()),
            .needed = std::vector<ByteCount>(profile_.ranks())};
  for (StageIndex s = 0; s < std::ssize(profile_.stages); ++s) {
    if (part_of_[s] != part) continue;
    const StageProfile& stage = profile_.stages[s];
    if (m < done[s * kOpKinds]) {
      unit.held[stage.rank] += HeldBy(done, s, m);
    } else {
      unit.needed[stage.rank] += stage.activation_bytes();
    }
  }
  return unit;
}

std::vector<MemoryUnits::Unit> MemoryUnits::UnitsUnderWay(
    const std::vector<MicrobatchIndex>& done) const {
  // From the first that holds anything anywhere to the last that does.
  MicrobatchIndex first = microbatches_, end = 0;
  for (size_t s = 0; s < profile_.stages.size(); ++s) {
    first = std::min(first, done[s * kOpKinds + (form_ == BackwardForm::kFull ? 1 : 2)]);
    end = std::max(end, done[s * kOpKinds]);
  }
  std::vector<Unit> units;
  for (MicrobatchIndex m = first; m < end; ++m) {
    for (const int32_t part : parts_) units.push_back(UnitOf(done, part, m));
  }
  return units;
}

bool MemoryUnits::CanEnd(const Unit& unit,
                         const std::vector<std::optional<ByteCount>>& room) const {
  for (RankIndex rank = 0; rank < profile_.ranks(); ++rank) {
    if (room[rank] && *room[rank] < unit.needed[rank]) return false;
  }
  return true;
}

bool MemoryUnits::IsSafe(const std::vector<MicrobatchIndex>& done, StageIndex stage) const {
  if (!room_[profile_.stages[stage].rank]) return true;
  std::vector<MicrobatchIndex> then = done;
  ++then[stage * kOpKinds];
  std::vector<std::optional<ByteCount>> room = room_;
  std::vector<Unit> under_way = UnitsUnderWay(then);
  for (RankIndex rank = 0; rank < profile_.ranks(); ++rank) {
    if (!room[rank]) continue;
    for (const Unit& unit : under_way) *room[rank] -= unit.held[rank];
    if (*room[rank] < ByteCount(0)) return false;
  }
  while (!under_way.empty()) {
    const auto next =
        std::ranges::find_if(under_way, [&](const Unit& unit) { return CanEnd(unit, room); });
    if (next == under_way.end()) return false;
    for (RankIndex rank = 0; rank < profile_.ranks(); ++rank) {
      if (room[rank]) *room[rank] += next->held[rank];
    }
    under_way.erase(next);
  }
  return true;
}

}  // namespace crossmesh
