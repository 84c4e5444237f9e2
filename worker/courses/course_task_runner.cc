#include "worker/courses/course_task_runner.h"

#include "common/base/status_macros.h"
#include "common/event_loop/event_loop.h"
#include "worker/courses/course_task.h"
#include "worker/executor/prepared_part.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

CourseTaskRunner::CourseTaskRunner(Ports ports) : ports_(std::move(ports)) {}

CourseTaskRunner::~CourseTaskRunner() = default;

absl::Status CourseTaskRunner::Start(TaskSpec spec, TaskObserver& observer) {
  const WorkerPart& part = spec.part->part();
  if (!part.has_courses()) return ports_.others.Start(std::move(spec), observer);
  const TaskKey key = spec.key;
  if (Find(key) != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat(key.ToString(), " runs here"));
  }
  ASSIGN_OR_RETURN(ArrayMemory memory, ArrayMemory::Create(part, ports_.make_memory));
  auto task = std::make_unique<CourseTask>(
      CourseTask::Ports{
          .loop = ports_.loop,
          .replays = ports_.replays,
          .counters = ports_.counters,
          .observer = observer,
          .release = ports_.release,
          // Not from inside the task's own call.
          .over = [this, key] { ports_.loop.Post([this, key] { tasks_.erase(key); }); }},
      std::move(spec), std::move(memory));
  RETURN_IF_ERROR(task->Start());
  tasks_[key] = std::move(task);
  return absl::OkStatus();
}

void CourseTaskRunner::Cancel(const TaskKey& key, absl::Status why) {
  if (CourseTask* const task = Find(key)) return task->Cancel(why);
  ports_.others.Cancel(key, std::move(why));
}

void CourseTaskRunner::PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) {
  if (CourseTask* const task = Find(key)) return task->LosePeer(worker, why);
  ports_.others.PeerLost(key, worker, std::move(why));
}

std::optional<int64_t> CourseTaskRunner::MovedBytes(const TaskKey& key) const {
  const CourseTask* const task = Find(key);
  return task == nullptr ? ports_.others.MovedBytes(key) : task->moved_bytes();
}

void CourseTaskRunner::SourceHere(const TaskKey& key, DeviceRank device) {
  if (CourseTask* const task = Find(key)) return task->SourceHere(device);
  ports_.others.SourceHere(key, device);
}

CourseTask* CourseTaskRunner::Find(const TaskKey& key) const {
  const auto found = tasks_.find(key);
  return found == tasks_.end() ? nullptr : found->second.get();
}

}  // namespace crossmesh
