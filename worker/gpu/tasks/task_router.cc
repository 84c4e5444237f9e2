#include "worker/gpu/tasks/task_router.h"

#include <utility>

namespace crossmesh {

absl::Status TaskRouter::Start(TaskSpec spec, TaskObserver& observer) {
  TaskRunner& runner = spec.communicators.empty() ? on_host_ : on_gpus_;
  return runner.Start(std::move(spec), observer);
}

void TaskRouter::Cancel(const TaskKey& key, absl::Status why) {
  on_gpus_.Cancel(key, why);
  on_host_.Cancel(key, std::move(why));
}

void TaskRouter::Refuse(const TaskKey& key) {
  on_gpus_.Refuse(key);
  on_host_.Refuse(key);
}

void TaskRouter::RaiseEpoch(uint64_t epoch) {
  on_gpus_.RaiseEpoch(epoch);
  on_host_.RaiseEpoch(epoch);
}

void TaskRouter::PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) {
  on_gpus_.PeerLost(key, worker, why);
  on_host_.PeerLost(key, worker, std::move(why));
}

std::optional<int64_t> TaskRouter::MovedBytes(const TaskKey& key) const {
  const std::optional<int64_t> moved = on_gpus_.MovedBytes(key);
  return moved.has_value() ? moved : on_host_.MovedBytes(key);
}

}  // namespace crossmesh
