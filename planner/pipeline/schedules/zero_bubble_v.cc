#include "planner/pipeline/schedules/zero_bubble_v.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/schedules/counts.h"
#include "planner/pipeline/schedules/placement.h"
#include "planner/pipeline/schedules/row_builder.h"

#include <algorithm>

namespace crossmesh {
namespace {

// Written for at least 2 * ranks - 1 microbatches; those that there are not are left out.
std::vector<Op> RowOf(RankIndex rank, int32_t ranks, int32_t microbatches) {
  const StageIndex down = VStage(rank, 0, ranks), up = VStage(rank, 1, ranks);
  RowBuilder row(std::max(microbatches, 2 * ranks - 1));
  const auto come_up = [&] {
    row.Forward(up);
    row.InputGradient(up);
    row.WeightGradient(up);
  };
  for (int32_t i = 0; i < 2 * (ranks - rank) - 1; ++i) row.Forward(down);
  for (int32_t i = 0; i < rank; ++i) {
    row.Forward(up);
    row.Forward(down);
  }
  for (int32_t i = 0; i < ranks - rank; ++i) come_up();
  while (!row.IsForwardDone(down) || !row.IsForwardDone(up)) {
    row.Forward(down);
    row.InputGradient(down);
    row.WeightGradient(down);
    come_up();
  }
  for (int32_t i = 0; i < rank; ++i) {
    row.InputGradient(down);
    row.InputGradient(up);
  }
  for (int32_t i = 0; i < ranks - rank; ++i) {
    row.InputGradient(down);
    row.WeightGradient(down);
  }
  while (row.pending(up) > 0) row.WeightGradient(up);
  while (row.has_pending()) row.WeightGradient();
  std::vector<Op> ops = std::move(row).Finish();
  std::erase_if(ops, [microbatches](const Op& op) { return op.microbatch >= microbatches; });
  return ops;
}

}  // namespace

absl::StatusOr<Schedule> MakeZeroBubbleV(int32_t ranks, int32_t microbatches) {
  constexpr absl::string_view kName = "zb_v";
  RETURN_IF_ERROR(CheckCount(kName, {.name = "ranks", .count = ranks}));
  RETURN_IF_ERROR(CheckCount(kName, {.name = "microbatches", .count = microbatches}));
  Schedule made{.stages = 2 * ranks, .microbatches = microbatches};
  for (RankIndex rank = 0; rank < ranks; ++rank) {
    made.ranks.push_back(RowOf(rank, ranks, microbatches));
  }
  return made;
}

}  // namespace crossmesh
