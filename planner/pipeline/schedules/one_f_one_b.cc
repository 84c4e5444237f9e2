#include "planner/pipeline/schedules/one_f_one_b.h"

#include "planner/pipeline/schedules/window_order.h"

#include <vector>

namespace crossmesh {

absl::StatusOr<Schedule> MakeOneForwardOneBackward(int32_t stages, int32_t microbatches) {
  std::vector<int32_t> windows;
  for (StageIndex i = 0; i < stages; ++i) windows.push_back(stages - i);
  return MakeWindowOrder(windows, microbatches, "1f1b");
}

}  // namespace crossmesh
