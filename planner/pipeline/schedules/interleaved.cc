#include "planner/pipeline/schedules/interleaved.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/schedules/counts.h"
#include "planner/pipeline/schedules/placement.h"
#include "planner/pipeline/schedules/row_builder.h"

#include <algorithm>
#include <utility>

#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

absl::StatusOr<int32_t> GroupOf(absl::string_view schedule, const InterleavedCounts& counts) {
  RETURN_IF_ERROR(CheckCount(schedule, {.name = "ranks", .count = counts.ranks}));
  RETURN_IF_ERROR(CheckCount(schedule, {.name = "chunks", .count = counts.chunks}));
  // As PyTorch: rounds of at least as many microbatches as ranks.
  const int32_t rounds = std::max(1, counts.microbatches / counts.ranks);
  const int32_t group = counts.group > 0 ? counts.group : counts.microbatches / rounds;
  RETURN_IF_ERROR(CheckCount(schedule, {.name = "microbatches",
                                        .count = counts.microbatches,
                                        .unit = counts.group > 0 ? group : rounds,
                                        .reason = "they are taken in equal groups"}));
  if (group < counts.microbatches) {
    RETURN_IF_ERROR(CheckCount(schedule, {.name = "microbatches in a group",
                                          .count = group,
                                          .least = counts.ranks,
                                          .reason = "the next chunk's begin where they end"}));
  }
  return group;
}

// The turns that the stages of a rank take, by unit: a microbatch of a stage.
class Turns {
 public:
  Turns(const InterleavedCounts& counts, int32_t group, RankIndex rank)
      : counts_(counts), group_(group), rank_(rank) {}

  int32_t units() const { return counts_.chunks * counts_.microbatches; }
  // Before the first backward op, in Megatron-LM and PyTorch: so many for each rank that follows.
  int32_t leading(int32_t for_each_rank) const {
    const int32_t following = counts_.ranks - 1 - rank_;
    return std::min((counts_.chunks - 1) * group_ + for_each_rank * following, units());
  }
  StageIndex Forward(int32_t unit) const { return StageOf(ChunkOf(unit)); }
  StageIndex Backward(int32_t unit) const { return StageOf(counts_.chunks - 1 - ChunkOf(unit)); }

 private:
  int32_t ChunkOf(int32_t unit) const { return unit / group_ % counts_.chunks; }
  StageIndex StageOf(int32_t chunk) const { return LoopedStage(rank_, chunk, counts_.ranks); }

  const InterleavedCounts& counts_;
  const int32_t group_;
  const RankIndex rank_;
};

// What a rank does for a microbatch of a stage on its way back, its unit of that number.
using GoBack = void (*)(RowBuilder& row, StageIndex stage, RankIndex rank, int32_t unit);

absl::StatusOr<Schedule> TakeTurns(absl::string_view schedule, const InterleavedCounts& counts,
                                   int32_t leading_for_each_rank, GoBack go_back) {
  ASSIGN_OR_RETURN(const int32_t group, GroupOf(schedule, counts));
  Schedule made{.stages = counts.ranks * counts.chunks, .microbatches = counts.microbatches};
  for (RankIndex rank = 0; rank < counts.ranks; ++rank) {
    const Turns turns(counts, group, rank);
    RowBuilder row(counts.microbatches);
    const int32_t leading = turns.leading(leading_for_each_rank);
    for (int32_t unit = 0; unit < leading; ++unit) row.Forward(turns.Forward(unit));
    for (int32_t unit = 0; unit < turns.units(); ++unit) {
      if (leading + unit < turns.units()) row.Forward(turns.Forward(leading + unit));
      go_back(row, turns.Backward(unit), rank, unit);
    }
    while (row.has_pending()) row.WeightGradient();
    made.ranks.push_back(std::move(row).Finish());
  }
  return made;
}

}  // namespace

absl::StatusOr<Schedule> MakeInterleaved(const InterleavedCounts& counts) {
  return TakeTurns("interleaved_1f1b", counts, 2,
                   [](RowBuilder& row, StageIndex stage, RankIndex /*rank*/, int32_t /*unit*/) {
                     row.Backward(stage);
                   });
}

absl::StatusOr<Schedule> MakeInterleavedZeroBubble(const InterleavedCounts& counts) {
  return TakeTurns("interleaved_zero_bubble", counts, 1,
                   [](RowBuilder& row, StageIndex stage, RankIndex rank, int32_t unit) {
                     row.InputGradient(stage);
                     if (unit >= rank) row.WeightGradient();
                   });
}

}  // namespace crossmesh
