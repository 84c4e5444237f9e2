// What running the steps of a course as replays takes, whether it runs once or for every message.

#pragma once

#include "common/plan/course.h"
#include "common/plan/step_kind.h"
#include "common/plan/worker_part.h"
#include "worker/executor/replay.h"
#include "worker/executor/task.h"

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

class PreparedPart;

// Steps are plans of their own beside those of an operation or a program, whose numbers are below
// this.
inline constexpr uint32_t kPlansMax = uint32_t{1} << 16;

// InvalidArgument, saying what was expected: of a part that is to be replayed, other than one
// course of one instance, one that gives its source up, or that adds to sums out of it in later
// steps, or a plan's number that is none below kPlansMax. OK for a part without courses.
absl::Status CheckReplayable(const WorkerPart& part, uint32_t plan);

// `step`: in a numbering of the steps of all courses of the part.
ReplayKey KeyOfStep(const ReplayKey& part, int32_t step);
int32_t StepOfKey(const ReplayKey& part, uint32_t plan);

// The replays of a step of a task's part, without buffers yet.
ReplaySpec ReplaysOfStep(const TaskSpec& task, int32_t step,
                         std::shared_ptr<const PreparedPart> part);

// What each step does, for counting.
std::vector<StepKind> KindsOf(const Course<WorkerPart>& course);

// Adds what a step has moved, and whom it has lost, to the report of the whole; not its status.
void AddToReport(const TaskReport& step, TaskReport& whole);

}  // namespace crossmesh
