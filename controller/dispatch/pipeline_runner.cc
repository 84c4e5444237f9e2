#include "controller/dispatch/pipeline_runner.h"

#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::Status PipelineRunner::Start(PipelineRequest request) {
  {
    const MutexLock lock(mutex_);
    if (running_ >= kRunsMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat(running_, " pipelines run already, expected at most ", kRunsMax));
    }
    ++running_;
  }
  const bool taken = environment_.queue.Post([this, request = std::move(request)]() mutable {
    const std::string id = request.run.id();
    const auto run = std::make_shared<RunningPipeline>(environment_, std::move(request),
                                                       [this, id] { Forget(id); });
    runs_[id] = run;
    run->Begin();
  });
  if (taken) return absl::OkStatus();
  const MutexLock lock(mutex_);
  --running_;
  return absl::UnavailableError("the controller is stopping");
}

void PipelineRunner::Forget(const std::string& id) {
  runs_.erase(id);
  const MutexLock lock(mutex_);
  if (--running_ == 0) idle_.SignalAll();
}

template <typename Action>
void PipelineRunner::WithAll(Action action) {
  environment_.queue.Post([this, action = std::move(action)] {
    // A copy: a run that ends leaves the table.
    std::vector<std::shared_ptr<RunningPipeline>> runs;
    for (const auto& [id, run] : runs_) runs.push_back(run);
    for (const auto& run : runs) action(*run);
  });
}

void PipelineRunner::Stop(const std::string& id, bool now, const std::string& reason) {
  environment_.queue.Post([this, id, now, reason] {
    const auto found = runs_.find(id);
    if (found == runs_.end()) return;
    const std::shared_ptr<RunningPipeline> run = found->second;
    run->Stop(now, reason);
  });
}

void PipelineRunner::StopAll(const std::string& reason) {
  WithAll([reason](RunningPipeline& run) { run.Stop(/*now=*/true, reason); });
}

void PipelineRunner::OnWorkerLost(const std::string& worker, const absl::Status& why) {
  WithAll([worker, why](RunningPipeline& run) { run.WorkerIsLost(worker, why); });
}

int64_t PipelineRunner::running() const {
  const MutexLock lock(mutex_);
  return running_;
}

bool PipelineRunner::WaitUntilIdle(absl::Duration timeout) {
  const RealClock clock;
  const absl::Duration end = clock.Monotonic() + timeout;
  const MutexLock lock(mutex_);
  while (running_ > 0) {
    const absl::Duration left = end - clock.Monotonic();
    if (left <= absl::ZeroDuration()) return false;
    idle_.WaitFor(mutex_, left);
  }
  return true;
}

}  // namespace crossmesh
