#include "planner/pipeline/schedules/controllable_memory.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/schedules/counts.h"
#include "planner/pipeline/schedules/fill_bubbles.h"
#include "planner/pipeline/schedules/placement.h"
#include "planner/pipeline/schedules/row_builder.h"

#include <array>
#include <map>
#include <utility>
#include <vector>

namespace crossmesh {
namespace {

constexpr int32_t kPeriod = 6;  // ops of a rank for one microbatch

// When a rank does what of the first microbatch, counted in ops: forward down and up, gradients of
// the input up and down.
std::array<int32_t, 4> BlockOf(MemoryBlock block, RankIndex rank, int32_t ranks) {
  switch (block) {
    case MemoryBlock::kMin: {
      const int32_t wait = ranks % 3 == 0 ? 2 : 0;  // else ops of two blocks would meet
      return {rank, 2 * ranks - 1 - rank, 2 * ranks + wait + rank, 4 * ranks + wait - 1 - rank};
    }
    case MemoryBlock::kHalf: {
      const int32_t wait = ranks % 2 == 0 ? 3 : 0;  // likewise
      return {2 * rank, 3 * ranks - 2 - rank, 3 * ranks + wait + 2 * rank - 1,
              6 * ranks + wait - 2 - rank};
    }
  }
  return {};
}

std::vector<Op> RowOf(MemoryBlock block, RankIndex rank, int32_t ranks, int32_t microbatches) {
  const StageIndex down = VStage(rank, 0, ranks), up = VStage(rank, 1, ranks);
  const std::array<int32_t, 4> begins = BlockOf(block, rank, ranks);
  const std::array<Op, 4> ops = {{{OpKind::kForward, down},
                                  {OpKind::kForward, up},
                                  {OpKind::kInputGradient, up},
                                  {OpKind::kInputGradient, down}}};
  std::map<int32_t, Op> op_at;  // by step
  for (MicrobatchIndex m = 0; m < microbatches; ++m) {
    for (size_t i = 0; i < ops.size(); ++i) op_at[begins[i] + kPeriod * m] = ops[i];
  }
  RowBuilder row(microbatches);
  int32_t step = op_at.begin()->first;
  for (const auto& [next, op] : op_at) {
    // A step that no block uses is a bubble, which a pending gradient of the weights can fill.
    for (; step < next; ++step) row.WeightGradient();
    op.kind == OpKind::kForward ? row.Forward(op.stage) : row.InputGradient(op.stage);
    ++step;
  }
  while (row.has_pending()) row.WeightGradient();
  return std::move(row).Finish();
}

absl::string_view NameOf(MemoryBlock block) {
  return block == MemoryBlock::kMin ? "v_min" : "v_half";
}

}  // namespace

absl::StatusOr<Schedule> MakeMemoryPattern(MemoryBlock block, int32_t ranks, int32_t microbatches) {
  RETURN_IF_ERROR(CheckCount(NameOf(block), {.name = "ranks", .count = ranks}));
  RETURN_IF_ERROR(CheckCount(NameOf(block), {.name = "microbatches", .count = microbatches}));
  Schedule made{.stages = 2 * ranks, .microbatches = microbatches};
  for (RankIndex rank = 0; rank < ranks; ++rank) {
    made.ranks.push_back(RowOf(block, rank, ranks, microbatches));
  }
  return made;
}

absl::StatusOr<Schedule> MakeControllableMemory(MemoryBlock block, int32_t ranks,
                                                int32_t microbatches) {
  ASSIGN_OR_RETURN(const Schedule pattern, MakeMemoryPattern(block, ranks, microbatches));
  return FillBubbles(pattern);
}

}  // namespace crossmesh
