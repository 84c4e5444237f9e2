#include "planner/pipeline/schedules/zero_bubble.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/schedules/counts.h"
#include "planner/pipeline/schedules/row_builder.h"

namespace crossmesh {

absl::StatusOr<Schedule> MakeDelayedOrder(std::span<const DelayedStage> stages,
                                          int32_t microbatches, absl::string_view schedule) {
  RETURN_IF_ERROR(CheckCount(schedule, {.name = "stages", .count = std::ssize(stages)}));
  RETURN_IF_ERROR(CheckCount(schedule, {.name = "microbatches", .count = microbatches}));
  Schedule made{.stages = static_cast<int32_t>(stages.size()), .microbatches = microbatches};
  for (StageIndex stage = 0; stage < made.stages; ++stage) {
    const auto [leading, delay] = stages[stage];
    RETURN_IF_ERROR(CheckCount(schedule, {.name = "leading forward ops", .count = leading}));
    RETURN_IF_ERROR(
        CheckCount(schedule, {.name = "delayed gradients", .count = delay, .least = 0}));
    RowBuilder row(microbatches);
    for (int32_t i = 0; i < leading; ++i) row.Forward(stage);
    for (int32_t i = 0; i < microbatches; ++i) {
      row.InputGradient(stage);
      // Activations of pending gradients stay in memory: `delay` is how many there is room for.
      if (row.pending(stage) > delay) row.WeightGradient();
      row.Forward(stage);
    }
    while (row.has_pending()) row.WeightGradient();
    made.ranks.push_back(std::move(row).Finish());
  }
  return made;
}

absl::StatusOr<Schedule> MakeZeroBubbleH1(int32_t stages, int32_t microbatches) {
  std::vector<DelayedStage> delayed;
  // Both together are as many on every stage: what 1F1B's first stage holds.
  for (StageIndex i = 0; i < stages; ++i) delayed.push_back({.leading = stages - i, .delay = i});
  return MakeDelayedOrder(delayed, microbatches, "zb_h1");
}

absl::StatusOr<Schedule> MakeZeroBubbleH2(int32_t stages, int32_t microbatches) {
  std::vector<DelayedStage> delayed;
  // About twice as many: forward ops also fill the first bubble.
  for (StageIndex i = 0; i < stages; ++i) {
    delayed.push_back({.leading = 2 * (stages - i) - 1, .delay = 2 * i});
  }
  return MakeDelayedOrder(delayed, microbatches, "zb_h2");
}

}  // namespace crossmesh
