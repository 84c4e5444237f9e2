// What is on record of how far a run has come, and how another controller goes on from there.

#include "common/base/log.h"
#include "controller/dispatch/pipeline_resumption.h"
#include "controller/dispatch/runnable_plan.h"
#include "controller/dispatch/running_pipeline.h"

#include <memory>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

void RunningPipeline::TakeUp() {
  progress_ = *request_.left;
  is_recorded_ = true;
  computed_ = ProcessesOf(progress_);
  run_.set_failed_iterations(progress_.failed_iterations());
  const PipelineProgress iterations = IterationsOf(progress_);
  if (iterations.complete.has_value()) {
    complete_iteration_ = iterations.complete;
    v1::PipelineIteration& complete = *run_.add_done();
    complete.set_index(*iterations.complete);
    complete.set_seconds(progress_.complete_seconds());
  }
  LogInfo("pipeline_run_taken_up", {{"run_id", run_.id()},
                                    {"complete_iteration", iterations.complete.value_or(-1)},
                                    {"begun_iteration", iterations.begun.value_or(-1)}});
  Feed(Machine::TakenUp{iterations});
}

void RunningPipeline::Do(const Machine::RecordProgress& action) {
  const std::optional<int64_t>& complete = action.progress.complete;
  if (complete != complete_iteration_) {
    completed_.clear();
    for (auto& [worker, report] : reports_) completed_.push_back(std::move(report));
    progress_.set_complete_iteration(*complete);
    progress_.set_complete_seconds(IterationSeconds(completed_));
  }
  progress_.set_begun_iteration(*action.progress.begun);
  progress_.set_failed_iterations(run_.failed_iterations());
  // All of them go on together: they are asked no more about what was lost before.
  if (!starting_.empty()) SetProcesses(starting_, progress_);
  Record();
}

void RunningPipeline::Record() {
  environment_.sink.RecordProgress(
      run_.id(), progress_.SerializeAsString(),
      [weak = weak_from_this(), &queue = environment_.queue](const absl::Status& status) {
        // Also when it is called at once: the machine is in the middle of its actions.
        queue.Post([weak, status] {
          if (const auto self = weak.lock()) self->OnRecorded(status);
        });
      });
}

void RunningPipeline::OnRecorded(const absl::Status& status) {
  if (!absl::IsUnavailable(status) && !absl::IsResourceExhausted(status)) {
    run_.clear_obstacle();
    return Feed(Machine::ProgressRecorded{status});
  }
  LogError("pipeline_progress_not_recorded", {{"run_id", run_.id()}, {"error", status.ToString()}});
  run_.set_obstacle(absl::StrCat("its progress cannot be recorded, and is again each second: ",
                                 status.message()));
  PublishSoon();
  environment_.queue.PostAfter(kRecordPause, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Record();
  });
}

}  // namespace crossmesh
