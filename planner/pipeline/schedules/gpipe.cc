#include "planner/pipeline/schedules/gpipe.h"

#include "planner/pipeline/schedules/window_order.h"

#include <algorithm>
#include <vector>

namespace crossmesh {

// The window order whose windows are never full.
absl::StatusOr<Schedule> MakeGpipe(int32_t stages, int32_t microbatches) {
  return MakeWindowOrder(std::vector<int32_t>(std::max(stages, 0), std::max(microbatches, 1)),
                         microbatches, "gpipe");
}

}  // namespace crossmesh
