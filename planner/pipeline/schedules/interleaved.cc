#include "planner/pipeline/schedules/interleaved.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/schedules/counts.h"
#include "planner/pipeline/schedules/placement.h"
#include "planner/pipeline/schedules/row_builder.h"

#include <algorithm>

namespace crossmesh {
namespace {

constexpr absl::string_view kName = "interleaved_1f1b";

absl::StatusOr<int32_t> GroupOf(const InterleavedCounts& counts) {
  RETURN_IF_ERROR(CheckCount(kName, {.name = "ranks", .count = counts.ranks}));
  RETURN_IF_ERROR(CheckCount(kName, {.name = "chunks", .count = counts.chunks}));
  // As PyTorch: rounds of at least as many microbatches as ranks.
  const int32_t rounds = std::max(1, counts.microbatches / counts.ranks);
  const int32_t group = counts.group > 0 ? counts.group : counts.microbatches / rounds;
  RETURN_IF_ERROR(CheckCount(kName, {.name = "microbatches",
                                     .count = counts.microbatches,
                                     .unit = counts.group > 0 ? group : rounds,
                                     .reason = "they are taken in equal groups"}));
  if (group < counts.microbatches) {
    RETURN_IF_ERROR(CheckCount(kName, {.name = "microbatches in a group",
                                       .count = group,
                                       .least = counts.ranks,
                                       .reason = "the next chunk's begin where they end"}));
  }
  return group;
}

}  // namespace

absl::StatusOr<Schedule> MakeInterleaved(const InterleavedCounts& counts) {
  ASSIGN_OR_RETURN(const int32_t group, GroupOf(counts));
  const auto [ranks, chunks, microbatches, given] = counts;
  const int32_t units = chunks * microbatches;
  Schedule made{.stages = ranks * chunks, .microbatches = microbatches};
  for (RankIndex rank = 0; rank < ranks; ++rank) {
    RowBuilder row(microbatches);
    const auto forward = [&](int32_t unit) {
      row.Forward(LoopedStage(rank, unit / group % chunks, ranks));
    };
    const auto backward = [&](int32_t unit) {
      row.Backward(LoopedStage(rank, chunks - 1 - unit / group % chunks, ranks));
    };
    // As many ops before the first backward op as in Megatron-LM.
    const int32_t leading = std::min((chunks - 1) * group + 2 * (ranks - 1 - rank), units);
    for (int32_t unit = 0; unit < leading; ++unit) forward(unit);
    for (int32_t unit = 0; unit < units; ++unit) {
      if (leading + unit < units) forward(leading + unit);
      backward(unit);
    }
    made.ranks.push_back(std::move(row).Finish());
  }
  return made;
}

}  // namespace crossmesh
