#include "planner/pipeline/schedules/eager_one_f_one_b.h"

#include "planner/pipeline/schedules/window_order.h"

#include <vector>

namespace crossmesh {

absl::StatusOr<Schedule> MakeEagerOneForwardOneBackward(int32_t stages, int32_t microbatches) {
  std::vector<int32_t> windows;
  for (StageIndex i = 0; i < stages; ++i) windows.push_back(2 * (stages - i) - 1);
  return MakeWindowOrder(windows, microbatches, "eager_1f1b");
}

}  // namespace crossmesh
