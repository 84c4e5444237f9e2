#pragma once

#include "controller/dispatch/running_pipeline.h"
#include "controller/dispatch/running_table.h"

#include <cstdint>
#include <string>

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
      : environment_(environment), table_(environment.queue, "pipelines", kRunsMax) {}

  // The sink hears how it goes. ResourceExhausted: too many run.
  absl::Status Start(PipelineRequest request);
  // At once, or behind the iteration that runs. Nothing happens when the run has ended.
  void Stop(const std::string& id, bool now, const std::string& reason);
  // All that run, at once.
  void StopAll(const std::string& reason);
  void OnWorkerLost(const std::string& worker, const absl::Status& why);

  int64_t running() const { return table_.running(); }
  // Whether nothing runs, after waiting for at most `timeout`. Blocks.
  bool WaitUntilIdle(absl::Duration timeout) { return table_.WaitUntilIdle(timeout); }

 private:
  const RunningPipeline::Environment environment_;
  RunningTable<RunningPipeline> table_;
};

}  // namespace crossmesh
