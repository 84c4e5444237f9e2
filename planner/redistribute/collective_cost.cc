#include "planner/redistribute/collective_cost.h"

#include <algorithm>
#include <tuple>
#include <utility>

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
  if (cost.rings.has_value()) rings_.emplace(space, *cost.rings);
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

// The slowest link to a device that has that part of a dimension; -1: the receiver has it.
int StepPrices::LevelBetween(const std::vector<DimensionCut>& cuts, int64_t part,
                             int64_t receiver) const {
  int level = -1;
  for (size_t i = cuts.size(); i-- > 0;) {
    const int32_t atom = cuts[i].atom;
    const int64_t size = space_.atoms()[atom].size;
    if (part % size != space_.Coordinate(receiver, atom)) level = std::max(level, levels_[atom]);
    part /= size;
  }
  return level;
}

// The nearest of the devices that have a block differs from the receiver only in what cuts.
double StepPrices::ReceiverSeconds(const LocalType& before, const LocalType& after,
                                   int64_t receiver, Overlap& overlap) const {
  struct Block {
    int level;
    int64_t elements;
  };
  std::vector<Block> blocks = {{-1, 1}};
  for (int dimension = 0; dimension < space_.shape().rank(); ++dimension) {
    const std::vector<DimensionCut>& cuts = before.dimensions[dimension];
    const int64_t wanted = space_.PartOf(after.dimensions[dimension], receiver);
    std::vector<Block> finer;
    for (int64_t part = 0; part < space_.Parts(cuts); ++part) {
      const int64_t common = overlap.Common(dimension, part, wanted);
      if (common == 0) continue;
      const int level = LevelBetween(cuts, part, receiver);
      for (const Block& block : blocks) {
        finer.push_back({std::max(level, block.level), block.elements * common});
      }
    }
    blocks = std::move(finer);
  }
  double seconds = 0;
  for (const Block& block : blocks) {
    if (block.level < 0) continue;
    seconds += MessageSeconds(block.level, block.elements * space_.item_bytes());
  }
  return seconds;
}

double StepPrices::RelaySeconds(const RedistributionStep& relay) const {
  if (relay.bytes_received == 0) return 0;
  Overlap overlap(space_, relay.before, relay.after);
  double seconds = ReceiverSeconds(relay.before, relay.after, relay.busiest_device, overlap);
  if (space_.devices() <= kReceiversMax) {
    for (int64_t receiver = 0; receiver < space_.devices(); ++receiver) {
      seconds = std::max(seconds, ReceiverSeconds(relay.before, relay.after, receiver, overlap));
    }
  }
  return seconds_per_step_ + seconds;
}

double StepPrices::SecondsOf(const RedistributionStep& step) const {
  if (step.kind == StepKind::kRelay) return RelaySeconds(step);
  return Seconds(step.kind, step.atoms, space_.LocalBytes(step.before));
}

// Of the larger one of the two arrays.
bool StepPrices::LieInOrder(const RedistributionStep& step) const {
  if (step.kind == StepKind::kAllReduce) return true;
  const bool gathers = step.kind == StepKind::kAllGather;
  std::vector<PieceCut> cuts;
  for (int dimension = 0; dimension < space_.shape().rank(); ++dimension) {
    for (const DimensionCut& cut : (gathers ? step.before : step.after).dimensions[dimension]) {
      // What does not divide has no pieces of one size.
      if (cut.stride == 0) return false;
      cuts.push_back({.dimension = dimension,
                      .stride = cut.stride,
                      .size = space_.atoms()[cut.atom].size,
                      .is_piece = std::ranges::count(step.atoms, cut.atom) > 0});
    }
  }
  return crossmesh::LieInOrder(space_.shape(), cuts);
}

void StepPrices::Price(RedistributionStep& step) const {
  step.seconds = SecondsOf(step);
  if (!rings_.has_value()) return;
  const double ring = rings_->Seconds(step.kind, step.atoms, space_.LocalBytes(step.before));
  if (ring > step.seconds || !LieInOrder(step)) return;
  step.seconds = ring;
  step.is_nccl_collective = true;
}

double StepPrices::LeastMessageSeconds(int level) const {
  const size_t first = std::min(static_cast<size_t>(level), sorted_.size() - 1);
  double least = sorted_[first].seconds_per_message;
  for (const Level& slower : std::span(sorted_).subspan(first)) {
    least = std::min(least, slower.seconds_per_message);
  }
  for (int32_t atom = 0; rings_.has_value() && atom < space_.atom_count(); ++atom) {
    if (levels_[atom] >= static_cast<int>(first)) {
      least = std::min(least, rings_->PassSeconds(atom));
    }
  }
  return least;
}

double StepPrices::LeastSeconds(int64_t bytes, int32_t steps, double messages) const {
  return static_cast<double>(steps) * seconds_per_step_ +
         messages * sorted_.front().seconds_per_message +
         sorted_.front().seconds_per_byte * static_cast<double>(bytes);
}

}  // namespace crossmesh
