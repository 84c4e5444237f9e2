#include "planner/pipeline/schedules/window_order.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/schedules/counts.h"
#include "planner/pipeline/schedules/row_builder.h"

#include <algorithm>
#include <vector>

namespace crossmesh {

absl::StatusOr<Schedule> MakeWindowOrder(std::span<const int32_t> windows, int32_t microbatches,
                                         absl::string_view schedule) {
  RETURN_IF_ERROR(CheckCount(schedule, {.name = "stages", .count = std::ssize(windows)}));
  RETURN_IF_ERROR(CheckCount(schedule, {.name = "microbatches", .count = microbatches}));
  Schedule made{.stages = static_cast<int32_t>(windows.size()), .microbatches = microbatches};
  for (StageIndex stage = 0; stage < made.stages; ++stage) {
    RETURN_IF_ERROR(
        CheckCount(schedule, {.name = "microbatches in a window", .count = windows[stage]}));
    RowBuilder row(microbatches);
    const int32_t leading = std::min(windows[stage], microbatches);
    for (int32_t i = 0; i < leading; ++i) row.Forward(stage);
    for (int32_t i = 0; i < microbatches; ++i) {
      // Frees the place in the window that the next forward op takes.
      row.Backward(stage);
      row.Forward(stage);
    }
    made.ranks.push_back(std::move(row).Finish());
  }
  return made;
}

absl::StatusOr<Schedule> MakeGpipe(int32_t stages, int32_t microbatches) {
  return MakeWindowOrder(std::vector<int32_t>(std::max(stages, 0), std::max(microbatches, 1)),
                         microbatches, "gpipe");
}

absl::StatusOr<Schedule> MakeOneForwardOneBackward(int32_t stages, int32_t microbatches) {
  std::vector<int32_t> windows;
  for (StageIndex i = 0; i < stages; ++i) windows.push_back(stages - i);
  return MakeWindowOrder(windows, microbatches, "1f1b");
}

absl::StatusOr<Schedule> MakeEagerOneForwardOneBackward(int32_t stages, int32_t microbatches) {
  std::vector<int32_t> windows;
  for (StageIndex i = 0; i < stages; ++i) windows.push_back(2 * (stages - i) - 1);
  return MakeWindowOrder(windows, microbatches, "eager_1f1b");
}

}  // namespace crossmesh
