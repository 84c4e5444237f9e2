#include "planner/pipeline/search/schedule_judge.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/memory.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace crossmesh {

ScheduleJudge JudgeByProfile(TransferModel model) {
  return [model](const OpTable& ops) -> absl::StatusOr<JudgedRun> {
    const std::vector<RankMemory> memory = PeakMemory(ops);
    RETURN_IF_ERROR(CheckMemory(ops, memory));
    ASSIGN_OR_RETURN(PipelineTimeline run, SimulatePipeline(ops, model));
    return JudgedRun{
        .run = std::move(run),
        .peak_bytes = std::ranges::max_element(memory, {}, &RankMemory::bytes)->bytes()};
  };
}

}  // namespace crossmesh
