#pragma once

#include "common/base/byte_count.h"
#include "planner/pipeline/profile.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace crossmesh {

// Forward ops, backward ops or gradients of the input, gradients of the weights.
inline constexpr size_t kOpKinds = 3;

// Whether the memory of ranks that have several stages lets all microbatches under way come to
// their end: the banker's question (Dijkstra 1965), where a unit is a microbatch in those stages
// that edges join. A unit needs all of its activations at once before it gives any back.
// Thread-compatible.
class MemoryUnits {
 public:
  // The profile must be valid and outlive it.
  MemoryUnits(const PipelineProfile& profile, int32_t microbatches, BackwardForm form);

  // Whether the next forward op of the stage may take its memory. `done`: ops by stage and kind, in
  // threes (kOpKinds). Cost: stages and ranks, times the square of the units under way.
  bool IsSafe(const std::vector<MicrobatchIndex>& done, StageIndex stage) const;

 private:
  // What a unit holds and what it still needs, by rank.
  struct Unit {
    std::vector<ByteCount> held;
    std::vector<ByteCount> needed;
  };

  ByteCount HeldBy(const std::vector<MicrobatchIndex>& done, StageIndex s, MicrobatchIndex m) const;
  Unit UnitOf(const std::vector<MicrobatchIndex>& done, int32_t part, MicrobatchIndex m) const;
  std::vector<Unit> UnitsUnderWay(const std::vector<MicrobatchIndex>& done) const;
  bool CanEnd(const Unit& unit, const std::vector<std::optional<ByteCount>>& room) const;

  const PipelineProfile& profile_;
  const int32_t microbatches_;
  const BackwardForm form_;
  const std::vector<std::optional<ByteCount>> room_;  // of empty ranks
  std::vector<int32_t> part_of_;                      // of the pipeline that edges join, by stage
  std::vector<int32_t> parts_;
};

}  // namespace crossmesh
