#include "planner/pipeline/schedules/dual_pipe.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/schedules/counts.h"
#include "planner/pipeline/schedules/placement.h"
#include "planner/pipeline/schedules/row_builder.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace crossmesh {
namespace {

// A rank, by its distance from where microbatches come in.
struct DualRank {
  StageIndex first = 0;   // that it does first: of the direction that comes in nearer to it
  StageIndex second = 0;  // of the other direction
  int32_t distance = 0;   // ranks nearer to an end
  int32_t half = 0;       // distances there are
};

// The eight steps of a rank in the released DualPipe, one loop each, for that many microbatches
// each way.
std::vector<Op> RowOf(const DualRank& rank, int32_t microbatches) {
  const auto [first, second, distance, half] = rank;
  const int32_t further = half - distance - 1;
  RowBuilder row(microbatches);
  for (int32_t i = 0; i < 2 * further; ++i) row.Forward(first);
  for (int32_t i = 0; i <= distance; ++i) {
    row.Forward(first);
    row.Forward(second);
  }
  for (int32_t i = 0; i < further; ++i) {
    row.InputGradient(second);
    row.WeightGradient();
    row.Forward(second);
  }
  for (int32_t i = 0; i < microbatches - 2 * half + distance + 1; ++i) {
    row.Forward(first);
    row.Backward(second);
    row.Forward(second);
    row.Backward(first);
  }
  for (int32_t i = 0; i < further; ++i) {
    row.Backward(second);
    row.Forward(second);
    row.Backward(first);
  }
  // From the middle of the sixth step on, gradients of the weights are left for later.
  const int32_t whole = distance + 1;
  for (int32_t i = 0; i < 2 * whole; ++i) {
    const StageIndex stage = i % 2 == 0 ? second : first;
    i < whole ? row.Backward(stage) : row.InputGradient(stage);
  }
  for (int32_t i = 0; i < further; ++i) {
    row.WeightGradient();
    row.InputGradient(first);
  }
  while (row.has_pending()) row.WeightGradient();
  return std::move(row).Finish();
}

// Fuses each forward op with the whole backward op after it, as in the fourth and fifth step of the
// release. There, as here, the first two on ranks in the middle take turns, so that other ranks
// need not wait for both.
std::vector<Op> FusePairs(std::vector<Op> row, const DualRank& rank,
                          std::span<const PairProfile> pairs) {
  bool takes_turns = rank.distance == rank.half - 1;
  for (size_t i = 1; i < row.size(); ++i) {
    Op& forward = row[i - 1];
    const Op& backward = row[i];
    if (forward.kind != OpKind::kForward || backward.kind != OpKind::kBackward) continue;
    if (std::exchange(takes_turns, false)) continue;
    forward.is_fused = FindPair(pairs, forward.stage, backward.stage) != nullptr;
  }
  return row;
}

}  // namespace

absl::StatusOr<Schedule> MakeDualPipe(int32_t ranks, int32_t microbatches,
                                      std::span<const PairProfile> pairs) {
  constexpr absl::string_view kName = "dual_pipe";
  RETURN_IF_ERROR(CheckCount(kName, {.name = "ranks",
                                     .count = ranks,
                                     .least = 2,
                                     .unit = 2,
                                     .reason = "the two directions meet in the middle"}));
  RETURN_IF_ERROR(CheckCount(kName, {.name = "microbatches",
                                     .count = microbatches,
                                     .least = int64_t{2} * ranks,
                                     .unit = 2,
                                     .reason = "half of them go each way and must fill it"}));
  Schedule made{.stages = 2 * ranks, .microbatches = microbatches / 2};
  for (RankIndex rank = 0; rank < ranks; ++rank) {
    const StageIndex down = rank, up = 2 * ranks - 1 - rank;
    const bool is_in_second_half = rank >= ranks / 2;
    const DualRank dual = {.first = is_in_second_half ? up : down,
                           .second = is_in_second_half ? down : up,
                           .distance = std::min(rank, ranks - 1 - rank),
                           .half = ranks / 2};
    made.ranks.push_back(FusePairs(RowOf(dual, microbatches / 2), dual, pairs));
  }
  return made;
}

absl::StatusOr<Schedule> MakeDualPipeV(int32_t ranks, int32_t microbatches,
                                       std::span<const PairProfile> pairs) {
  constexpr absl::string_view kName = "dual_pipe_v";
  RETURN_IF_ERROR(CheckCount(kName, {.name = "ranks", .count = ranks}));
  RETURN_IF_ERROR(CheckCount(kName, {.name = "microbatches",
                                     .count = microbatches,
                                     .least = int64_t{2} * ranks,
                                     .reason = "they must fill the way down and up"}));
  Schedule made{.stages = 2 * ranks, .microbatches = microbatches};
  for (RankIndex rank = 0; rank < ranks; ++rank) {
    const DualRank dual = {.first = VStage(rank, 0, ranks),
                           .second = VStage(rank, 1, ranks),
                           .distance = rank,
                           .half = ranks};
    made.ranks.push_back(FusePairs(RowOf(dual, microbatches), dual, pairs));
  }
  return made;
}

}  // namespace crossmesh
