#include "planner/redistribute/planning/step_planner.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace crossmesh {

absl::StatusOr<Course<Plan>> StepPlanner::PlanSteps(const Course<StepTable>& draft) const {
  Course<Plan> course{.instances = draft.instances,
                      .buffers = draft.buffers,
                      .tensors = draft.tensors,
                      .releases_source = request_.redistribution.release_source};
  const Beside beside = std::max(request_.beside, Beside::kInstances);
  int between_hosts = 0;
  for (const Course<StepTable>::Step& step : draft.steps) {
    ASSIGN_OR_RETURN(Plan plan, PlanStep(*step.move, beside));
    between_hosts += plan.figures().network_bytes > 0 ? 1 : 0;
    course.steps.push_back({.move = std::make_shared<const Plan>(std::move(plan)),
                            .reduction = step.reduction,
                            .adds_own = step.adds_own});
    RETURN_IF_ERROR(CheckWanted(cancelled_));
  }
  // Sums that go round a ring leave its ports to what goes round it after them.
  const bool rings_alone = between_hosts < 2 || draft.steps.front().adds_own;
  if (rings_alone || beside == Beside::kTransfers) return course;
  // Steps of several instances overlap. What goes round a ring in one stream would have to share
  // each port with the many streams of another step, and every host waits for the one before it.
  for (size_t k = 0; k < course.steps.size(); ++k) {
    if (course.steps[k].move->figures().depth < 2) continue;
    ASSIGN_OR_RETURN(Plan plan, PlanStep(*draft.steps[k].move, Beside::kTransfers));
    course.steps[k].move = std::make_shared<const Plan>(std::move(plan));
    RETURN_IF_ERROR(CheckWanted(cancelled_));
  }
  return course;
}

absl::StatusOr<Plan> StepPlanner::PlanStep(const StepTable& step, Beside beside) const {
  ReshardRequest request{.tensors = step.table,
                         .topology = request_.topology,
                         .chunk_bytes = request_.chunk_bytes,
                         .nic_share = request_.nic_share,
                         // All steps are over one communicator of all devices.
                         .no_broadcasts = true,
                         .beside = beside,
                         .no_m2n = "it is a step of several"};
  // Between GPUs the planner finds the best size.
  if (request.chunk_bytes == 0 && !devices_.are_gpus && devices_.over_gpus.empty()) {
    request.chunk_bytes = kStepChunkBytes;
  }
  if (devices_.is_mixed) {
    request.over_gpus.emplace();
    for (const DeviceRank gpu : devices_.over_gpus) {
      request.over_gpus->push_back(request_.tensors->devices()[gpu]);
    }
  }
  return PlanReshard(request, cancelled_);
}

}  // namespace crossmesh
