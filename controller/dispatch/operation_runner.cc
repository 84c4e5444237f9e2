#include "controller/dispatch/operation_runner.h"

#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::Status OperationRunner::Start(OperationRequest request) {
  {
    const MutexLock lock(mutex_);
    if (running_ >= kOperationsMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat(running_, " operations run already, expected at most ", kOperationsMax));
    }
    ++running_;
  }
  const bool taken = environment_.queue.Post([this, request = std::move(request)]() mutable {
    const std::string id = request.id;
    const auto operation = std::make_shared<RunningOperation>(environment_, std::move(request),
                                                              [this, id] { Forget(id); });
    operations_[id] = operation;
    operation->Begin();
  });
  if (taken) return absl::OkStatus();
  const MutexLock lock(mutex_);
  --running_;
  return absl::UnavailableError("the controller is stopping");
}

void OperationRunner::Forget(const std::string& id) {
  operations_.erase(id);
  const MutexLock lock(mutex_);
  if (--running_ == 0) idle_.SignalAll();
}

template <typename Action>
void OperationRunner::WithOperation(const std::string& id, Action action) {
  environment_.queue.Post([this, id, action = std::move(action)] {
    const auto found = operations_.find(id);
    if (found == operations_.end()) return;
    const std::shared_ptr<RunningOperation> operation = found->second;
    action(*operation);
  });
}

void OperationRunner::Cancel(const std::string& id, const std::string& reason) {
  WithOperation(id, [reason](RunningOperation& operation) { operation.Cancel(reason); });
}

void OperationRunner::OnProgress(const Progress& progress) {
  WithOperation(progress.operation_id, [progress](RunningOperation& operation) {
    operation.Progress(progress.worker, progress.attempt, progress.moved_bytes);
  });
}

void OperationRunner::OnWorkerLost(const std::string& worker, const absl::Status& why) {
  environment_.queue.Post([this, worker, why] {
    std::vector<std::shared_ptr<RunningOperation>> running;
    for (const auto& [id, operation] : operations_) running.push_back(operation);
    for (const auto& operation : running) operation->WorkerIsLost(worker, why);
  });
}

int64_t OperationRunner::running() const {
  const MutexLock lock(mutex_);
  return running_;
}

bool OperationRunner::WaitUntilIdle(absl::Duration timeout) {
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
