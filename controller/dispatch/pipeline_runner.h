#pragma once

#include "common/base/mutex.h"
#include "controller/dispatch/running_pipeline.h"

#include <cstdint>
#include <memory>
#include <string>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// Runs pipelines: every machine on one serial queue, planning on the planners' threads.
// Thread-safe; never blocks, but for WaitUntilIdle. The queues must have stopped before the runner
// goes away.
class PipelineRunner {
 public:
  static constexpr int64_t kRunsMax = 64;  // at once

  explicit PipelineRunner(const RunningPipeline::Environment& environment)
      : environment_(environment) {}

  // The sink hears how it goes. ResourceExhausted: too many run.
  absl::Status Start(PipelineRequest request);
  // At once, or behind the iteration that runs. Nothing happens when the run has ended.
  void Stop(const std::string& id, bool now, const std::string& reason);
  // All that run, at once.
  void StopAll(const std::string& reason);
  void OnWorkerLost(const std::string& worker, const absl::Status& why);

  int64_t running() const;
  // Whether nothing runs, after waiting for at most `timeout`. Blocks.
  bool WaitUntilIdle(absl::Duration timeout);

 private:
  // Calls `action` with each run on the queue.
  template <typename Action>
  void WithAll(Action action);
  void Forget(const std::string& id);

  const RunningPipeline::Environment environment_;
  // Confined to the queue.
  absl::flat_hash_map<std::string, std::shared_ptr<RunningPipeline>> runs_;

  mutable Mutex mutex_;
  CondVar idle_;
  int64_t running_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace crossmesh
