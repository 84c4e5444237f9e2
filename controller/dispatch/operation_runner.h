#pragma once

#include "controller/dispatch/running_operation.h"
#include "controller/dispatch/running_table.h"

#include <cstdint>
#include <string>

#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

// Runs operations: every machine on one serial queue, planning on the planners' threads.
// Thread-safe; never blocks, but for WaitUntilIdle. The queues must have stopped before the runner
// goes away.
class OperationRunner {
 public:
  static constexpr int64_t kOperationsMax = 256;  // that run at once

  explicit OperationRunner(const RunningOperation::Environment& environment)
      : environment_(environment), table_(environment.queue, "operations", kOperationsMax) {}

  // Runs the operation; the sink hears how it goes. ResourceExhausted: too many run.
  absl::Status Start(OperationRequest request);
  // Nothing happens when the operation does not run any more.
  void Cancel(const std::string& id, const std::string& reason);
  // A worker's word on its task.
  struct Progress {
    std::string worker;
    std::string operation_id;
    uint32_t attempt = 1;
    int64_t moved_bytes = 0;
  };
  void OnProgress(const Progress& progress);
  void OnWorkerLost(const std::string& worker, const absl::Status& why);

  int64_t running() const { return table_.running(); }
  // Whether no operation runs, after waiting for at most `timeout`. Blocks.
  bool WaitUntilIdle(absl::Duration timeout) { return table_.WaitUntilIdle(timeout); }

 private:
  const RunningOperation::Environment environment_;
  RunningTable<RunningOperation> table_;
};

}  // namespace crossmesh
