#include "planner/pipeline/schedules/window_order.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/schedules/counts.h"
#include "planner/pipeline/schedules/row_builder.h"

#include <algorithm>

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

}  // namespace crossmesh
