#include "planner/parallelism/schedule_run.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/memory.h"
#include "planner/pipeline/op_table.h"
#include "planner/pipeline/profile.h"
#include "planner/pipeline/schedules/placement.h"
#include "planner/pipeline/schedules/schedule_names.h"
#include "planner/pipeline/timeline.h"

#include <algorithm>

namespace crossmesh {
namespace {

constexpr int64_t kStageBytes = 1'000'000;  // of one microbatch, so that parts of it can be told

// Equal stages, round and round or down and up again, whichever the schedule takes.
PipelineProfile ProfileOf(const EqualPipeline& shape, int32_t chunks, bool down_and_up) {
  const auto ranks = static_cast<int32_t>(shape.ranks);
  const auto parts = static_cast<double>(chunks);
  PipelineProfile profile;
  profile.rank_bytes_max.resize(ranks);
  for (StageIndex stage = 0; stage < ranks * chunks; ++stage) {
    profile.stages.push_back({.rank = down_and_up ? VRank(stage, ranks) : LoopedRank(stage, ranks),
                              .forward_seconds = shape.forward_seconds / parts,
                              .input_gradient_seconds = shape.input_gradient_seconds / parts,
                              .weight_gradient_seconds = shape.weight_gradient_seconds / parts,
                              .weight_gradient_bytes = ByteCount(kStageBytes)});
    if (stage == 0) continue;
    profile.edges.push_back({.from = stage - 1,
                             .to = stage,
                             .forward_seconds = shape.transfer_seconds,
                             .backward_seconds = shape.transfer_seconds});
  }
  return profile;
}

}  // namespace

absl::StatusOr<ScheduleRun> RunSchedule(absl::string_view schedule, const EqualPipeline& shape) {
  PipelineProfile profile = ProfileOf(shape, static_cast<int32_t>(shape.chunks), false);
  int64_t chunks = shape.chunks;
  if (!CheckPlacement(schedule, profile).ok()) {
    // Down and up again.
    PipelineProfile folded = ProfileOf(shape, 2, true);
    if (CheckPlacement(schedule, folded).ok()) {
      profile = folded;
      chunks = 2;
    }
  }
  ASSIGN_OR_RETURN(
      const Schedule order,
      MakeNamedSchedule(schedule, {.profile = profile,
                                   .microbatches = static_cast<int32_t>(shape.microbatches)}));
  ASSIGN_OR_RETURN(const OpTable ops, OpTable::Create(order, profile));
  ASSIGN_OR_RETURN(const PipelineTimeline run, SimulatePipeline(ops, TransferModel::kLatency));
  ScheduleRun result{.seconds = run.seconds};
  for (const RankMemory& memory : PeakMemory(ops)) {
    result.in_flight =
        std::max(result.in_flight, static_cast<double>(memory.activation_bytes.value()) /
                                       static_cast<double>(kStageBytes * chunks));
  }
  return result;
}

}  // namespace crossmesh
