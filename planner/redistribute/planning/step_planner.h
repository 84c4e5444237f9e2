#pragma once

#include "common/base/cancel_check.h"
#include "common/plan/course.h"
#include "common/plan/indices.h"
#include "common/plan/plan.h"
#include "planner/redistribute/planning/course_draft.h"
#include "planner/reshard/plan_reshard.h"

#include <utility>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// Makes plans of the steps of courses, each by itself, as the request's network has it. Refers to
// the request. Thread-compatible.
class StepPlanner {
 public:
  // Of the request.
  struct Devices {
    bool are_gpus = false;
    bool is_mixed = false;  // GPUs beside host memory
    std::vector<DeviceRank> over_gpus = {};
  };
  StepPlanner(const ReshardRequest& request, Devices devices, CancelCheck cancelled)
      : request_(request), devices_(std::move(devices)), cancelled_(cancelled) {}

  // Streams of steps that overlap go round no ring, unless all do. As PlanReshard says.
  absl::StatusOr<Course<Plan>> PlanSteps(const Course<StepTable>& draft) const;

 private:
  absl::StatusOr<Plan> PlanStep(const StepTable& step, Beside beside) const;

  const ReshardRequest& request_;
  const Devices devices_;
  const CancelCheck cancelled_;
};

}  // namespace crossmesh
