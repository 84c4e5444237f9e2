#include "controller/dispatch/operation_runner.h"

#include <memory>
#include <utility>

#include <absl/functional/any_invocable.h>

namespace crossmesh {

absl::Status OperationRunner::Start(OperationRequest request) {
  const std::string id = request.id;
  return table_.Start(
      id, [this, request = std::move(request)](absl::AnyInvocable<void()> on_finished) mutable {
        return std::make_shared<RunningOperation>(environment_, std::move(request),
                                                  std::move(on_finished));
      });
}

void OperationRunner::Cancel(const std::string& id, const std::string& reason) {
  table_.With(id, [reason](RunningOperation& operation) { operation.Cancel(reason); });
}

void OperationRunner::OnProgress(const Progress& progress) {
  table_.With(progress.operation_id, [progress](RunningOperation& operation) {
    operation.Progress(progress.worker, progress.attempt, progress.moved_bytes);
  });
}

void OperationRunner::OnWorkerLost(const std::string& worker, const absl::Status& why) {
  table_.WithAll(
      [worker, why](RunningOperation& operation) { operation.WorkerIsLost(worker, why); });
}

}  // namespace crossmesh
