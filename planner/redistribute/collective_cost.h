#pragma once

#include "planner/redistribute/local_type.h"
#include "planner/redistribute/overlap.h"
#include "planner/redistribute/ring_prices.h"
#include "planner/redistribute/step.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace crossmesh {

// A link that messages between devices cross which differ in this part of an axis.
struct AxisLink {
  SubAxis part;
  double seconds_per_message = 0;
  double bytes_per_second = 1;
};

// The time model of collectives, as published for DTensor: a step takes
//   seconds_per_step + messages * seconds_per_message + bytes / bytes_per_second.
// A message crosses the slowest link among the atoms in which its ends differ. An all-to-all and a
// relay pay for every peer at that peer's link; a gather and the reductions are rings, and pay for
// everything at the slowest link of the group. Two-level forms are sequences of steps, one for each
// level, and so a search finds them by itself. Between GPUs a gather or a reduction is a collective
// of NCCL where that takes less. A plain value, that callers fill from the network.
struct CollectiveCost {
  double seconds_per_step = 0;
  std::vector<AxisLink> links;                   // the parts of axes without one cost nothing
  std::optional<RingCost> rings = std::nullopt;  // nothing: no step is a collective of NCCL
};

// Prices steps of one space. Immutable.
class StepPrices {
 public:
  StepPrices(const TypeSpace& space, const CollectiveCost& cost);

  // Seconds of a step that is no relay, in messages: of its kind, over atoms, with so many local
  // bytes before.
  double Seconds(StepKind kind, std::span<const int32_t> atoms, int64_t local_bytes) const;
  // As collectives of NCCL; nothing where there are none.
  const std::optional<RingPrices>& rings() const { return rings_; }
  // Of any step, in messages. Of a relay for the device that receives longest, or on more than 32
  // devices for the busiest one, with what it misses of each block sent by the nearest holder.
  // Cost: the messages of those that are priced.
  double SecondsOf(const RedistributionStep& step) const;
  // Gives a step its medium and its seconds: as a collective of NCCL where that takes less.
  void Price(RedistributionStep& step) const;
  // The least seconds in which so many steps, or more, bring a device so many bytes in so many
  // messages, or more.
  double LeastSeconds(int64_t bytes, int32_t steps, double messages) const;
  double seconds_per_step() const { return seconds_per_step_; }
  // The least of a message on links of that level or slower ones, or of a pass of a ring; of any
  // where there are none.
  double LeastMessageSeconds(int level) const;
  // Links are counted from the fastest, 0.
  int level(int32_t atom) const { return levels_[atom]; }

 private:
  struct Level {
    double seconds_per_message = 0;
    double seconds_per_byte = 0;
  };
  double RelaySeconds(const RedistributionStep& relay) const;
  int LevelBetween(const std::vector<DimensionCut>& cuts, int64_t part, int64_t receiver) const;
  double ReceiverSeconds(const LocalType& before, const LocalType& after, int64_t receiver,
                         Overlap& overlap) const;
  int LevelOf(const TypeSpace& space, const CollectiveCost& cost, int32_t atom) const;
  double MessageSeconds(int level, int64_t bytes) const {
    return sorted_[level].seconds_per_message +
           sorted_[level].seconds_per_byte * static_cast<double>(bytes);
  }
  bool LieInOrder(const RedistributionStep& step) const;
  double AllToAllSeconds(std::span<const int32_t> atoms, int64_t piece_bytes) const;

  const TypeSpace& space_;
  double seconds_per_step_;
  std::vector<Level> sorted_;  // fastest first, at least one
  std::vector<int> levels_;    // of atoms
  std::optional<RingPrices> rings_;
};

}  // namespace crossmesh
