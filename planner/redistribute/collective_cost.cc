#include "planner/redistribute/collective_cost.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <absl/container/flat_hash_map.h>

namespace crossmesh {
namespace {

// Of meshes with more devices, only the neediest one is priced in a relay.
constexpr int64_t kReceiversMax = 32;

}  // namespace

StepPrices::StepPrices(const TypeSpace& space, const CollectiveCost& cost)
    : space_(space), seconds_per_step_(cost.seconds_per_step) {
  for (const AxisLink& link : cost.links) {
    sorted_.push_back({link.seconds_per_message, 1 / link.bytes_per_second});
  }
  if (sorted_.empty()) sorted_.push_back({});
  const auto order = [](const Level& level) {
    return std::pair(level.seconds_per_byte, level.seconds_per_message);
  };
  std::ranges::sort(sorted_, {}, order);
  const auto same = std::ranges::unique(sorted_, {}, order);
  sorted_.erase(same.begin(), same.end());
  for (int32_t atom = 0; atom < space.atom_count(); ++atom) {
    levels_.push_back(LevelOf(space, cost, atom));
  }
}

// An atom over several links is as slow as the slowest.
int StepPrices::LevelOf(const TypeSpace& space, const CollectiveCost& cost, int32_t atom) const {
  const SubAxis& part = space.atoms()[atom];
  int slowest = 0;
  for (const AxisLink& link : cost.links) {
    const bool shared = link.part.axis == part.axis && link.part.before < part.before * part.size &&
                        part.before < link.part.before * link.part.size;
    if (!shared) continue;
    for (int level = slowest; level < static_cast<int>(sorted_.size()); ++level) {
      if (sorted_[level].seconds_per_byte == 1 / link.bytes_per_second &&
          sorted_[level].seconds_per_message == link.seconds_per_message) {
        slowest = level;
      }
    }
  }
  return slowest;
}

double StepPrices::AllToAllSeconds(std::span<const int32_t> atoms, int64_t piece_bytes) const {
  double seconds = 0;
  int64_t nearer = 1;  // members within the levels so far
  for (int level = 0; level < static_cast<int>(sorted_.size()); ++level) {
    int64_t members = nearer;
    for (const int32_t atom : atoms) {
      if (levels_[atom] == level) members *= space_.atoms()[atom].size;
    }
    seconds += static_cast<double>(members - nearer) * MessageSeconds(level, piece_bytes);
    nearer = members;
  }
  return seconds;
}

double StepPrices::Seconds(StepKind kind, std::span<const int32_t> atoms,
                           int64_t local_bytes) const {
  int64_t group = 1;
  int slowest = 0;
  for (const int32_t atom : atoms) {
    group *= space_.atoms()[atom].size;
    slowest = std::max(slowest, levels_[atom]);
  }
  const double others = static_cast<double>(group - 1);
  switch (kind) {
    case StepKind::kSlice:
      return 0;
    case StepKind::kAllGather:
      return seconds_per_step_ + others * MessageSeconds(slowest, local_bytes);
    case StepKind::kReduceScatter:
      return seconds_per_step_ + others * MessageSeconds(slowest, local_bytes / group);
    case StepKind::kAllReduce:
      return seconds_per_step_ +
             2 * others * MessageSeconds(slowest, (local_bytes + group - 1) / group);
    case StepKind::kAllToAll:
      return seconds_per_step_ + AllToAllSeconds(atoms, local_bytes / group);
    case StepKind::kPermute:
      return atoms.empty() ? 0 : seconds_per_step_ + MessageSeconds(slowest, local_bytes);
    case StepKind::kRelay:
      break;  // RelaySeconds
  }
  return 0;
}

// Nothing where the holder has another summand.
std::optional<int> StepPrices::LevelBetween(int64_t holder, int64_t receiver,
                                            std::span<const int32_t> partial) const {
  for (const int32_t atom : partial) {
    if (space_.Coordinate(holder, atom) != space_.Coordinate(receiver, atom)) return std::nullopt;
  }
  int level = holder == receiver ? -1 : 0;
  for (int32_t atom = 0; atom < space_.atom_count(); ++atom) {
    if (space_.Coordinate(holder, atom) != space_.Coordinate(receiver, atom)) {
      level = std::max(level, levels_[atom]);
    }
  }
  return level;
}

double StepPrices::ReceiverSeconds(const LocalType& before, int64_t receiver,
                                   Overlap& overlap) const {
  // For each block that the receiver needs: the nearest device that has it.
  std::map<std::vector<int64_t>, std::pair<int, int64_t>> nearest;
  for (int64_t holder = 0; holder < space_.devices(); ++holder) {
    const int64_t common = overlap.Elements(holder, receiver);
    if (common == 0) continue;
    const std::optional<int> level = LevelBetween(holder, receiver, before.partial);
    if (!level.has_value()) continue;
    std::vector<int64_t> block;
    for (const std::vector<DimensionCut>& cuts : before.dimensions) {
      block.push_back(space_.PartOf(cuts, holder));
    }
    const auto [found, added] = nearest.try_emplace(std::move(block), *level, common);
    if (!added) found->second.first = std::min(found->second.first, *level);
  }
  double seconds = 0;
  for (const auto& [block, source] : nearest) {
    const auto [level, elements] = source;
    if (level >= 0) seconds += MessageSeconds(level, elements * space_.item_bytes());
  }
  return seconds;
}

double StepPrices::RelaySeconds(const LocalType& before, const LocalType& after) const {
  const auto [neediest, missing] = FindNeediestDevice(space_, before, after);
  if (missing == 0) return 0;
  Overlap overlap(space_, before, after);
  double seconds = ReceiverSeconds(before, neediest, overlap);
  if (space_.devices() <= kReceiversMax) {
    for (int64_t receiver = 0; receiver < space_.devices(); ++receiver) {
      seconds = std::max(seconds, ReceiverSeconds(before, receiver, overlap));
    }
  }
  return seconds_per_step_ + seconds;
}

double StepPrices::SecondsOf(const RedistributionStep& step) const {
  if (step.kind == StepKind::kRelay) return RelaySeconds(step.before, step.after);
  return Seconds(step.kind, step.atoms, space_.LocalBytes(step.before));
}

double StepPrices::LeastSeconds(int64_t bytes, int32_t steps, double messages) const {
  return static_cast<double>(steps) * seconds_per_step_ +
         messages * sorted_.front().seconds_per_message +
         sorted_.front().seconds_per_byte * static_cast<double>(bytes);
}

}  // namespace crossmesh
