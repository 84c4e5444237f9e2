#pragma once

#include "common/base/digest.h"
#include "worker/executor/task_runner.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class EventLoop;
class PreparedPart;

// Runs parts of plans that join GPUs and host memory (common/plan/media.h) as two tasks of one key,
// side by side: the half to devices over GPUs, and the half by way of host memory. A half that
// fails ends the other one. All other parts, and such a part in a task without communicators, go to
// the runner over GPUs as they are. Confined to the loop; destroyed when that has stopped.
class MixedTaskRunner final : public TaskRunner {
 public:
  // Parts that ran last are kept in halves.
  static constexpr size_t kPartsMax = 16;

  // All must outlive it. `over_gpus` leaves tasks without communicators to `by_host`.
  MixedTaskRunner(EventLoop& loop, TaskRunner& over_gpus, TaskRunner& by_host);
  ~MixedTaskRunner() override;

  // Errors of either runner.
  absl::Status Start(TaskSpec spec, TaskObserver& observer) override;
  void Cancel(const TaskKey& key, absl::Status why) override;
  void Refuse(const TaskKey& key) override { over_gpus_.Refuse(key); }
  void RaiseEpoch(uint64_t epoch) override { over_gpus_.RaiseEpoch(epoch); }
  void PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) override;
  std::optional<int64_t> MovedBytes(const TaskKey& key) const override;

 private:
  class Task;
  struct Halves {
    Digest digest;  // of the part that was cut
    std::shared_ptr<const PreparedPart> over_gpus;
    std::shared_ptr<const PreparedPart> by_host;
  };

  // Cost: that of proving both, when the part did not run lately.
  absl::StatusOr<Halves> HalvesOf(const PreparedPart& part);
  Task* Find(const TaskKey& key) const;

  EventLoop& loop_;
  TaskRunner& over_gpus_;
  TaskRunner& by_host_;
  std::list<Halves> cut_;  // used last: in front
  std::map<TaskKey, std::unique_ptr<Task>> tasks_;
};

}  // namespace crossmesh
