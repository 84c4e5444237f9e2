#pragma once

#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/base/mutex.h"
#include "controller/dispatch/running_pipeline.h"
#include "controller/dispatch/task_queue.h"
#include "crossmesh/v1/pipeline_service.pb.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Somebody who follows a run. Called on the registry's queue; must not block.
class PipelineWatcher {
 public:
  virtual ~PipelineWatcher() = default;
  // The run now, and at every change; the last one has ended. False: enough.
  virtual bool OnRun(const v1::PipelineRun& run) = 0;
  // There is no such run (any more), or the controller stops.
  virtual void OnNoRun(const absl::Status& status) = 0;
};

// All runs of pipelines, as clients see them: those that run, from the runner, and the last ones
// that have ended; who watches them; the request ids that began them, for as long as they are
// there. They end with this process. Thread-safe.
class PipelineRunRegistry final : public PipelineSink {
 public:
  struct Options {
    TaskQueue& queue;  // on which the runner calls; watchers are called on it as well
    const Clock& clock;
    uint64_t epoch = 0;
    // Of runs that have ended; the last one is kept, however large.
    size_t ended_max = 1000;
    size_t ended_bytes_max = size_t{64} << 20;
  };
  explicit PipelineRunRegistry(const Options& options) : options_(options) {}

  // The run that this request began; nothing when it is new. AlreadyExists names the request id
  // when the content was another.
  absl::StatusOr<std::optional<std::string>> Find(const v1::StartPipelineRequest& request) const;

  struct Entry {
    v1::PipelineRun run;
    bool is_new = false;  // the caller starts it, or says that it cannot
  };
  // A new run, PREPARING, or that which the request began before. As Find.
  absl::StatusOr<Entry> Open(const v1::StartPipelineRequest& request);
  // A new run that could not be started: it never was.
  void Withdraw(const std::string& id, const absl::Status& why);

  void Watch(const std::string& id, const std::shared_ptr<PipelineWatcher>& watcher);
  void Unwatch(const std::string& id, const PipelineWatcher* watcher);
  // Tells all watchers that they hear nothing more.
  void DismissWatchers(const absl::Status& why);

  // NotFound names the run.
  absl::StatusOr<std::shared_ptr<const v1::PipelineRun>> Get(const std::string& id) const;
  // Newest first, those with an id less than `before` (empty: all).
  std::vector<std::shared_ptr<const v1::PipelineRun>> List(const std::string& before,
                                                           int64_t limit) const;

  void OnRun(std::shared_ptr<const v1::PipelineRun> run) override;

 private:
  using Watchers = std::vector<std::shared_ptr<PipelineWatcher>>;
  struct Run {
    Digest content;
    std::shared_ptr<const v1::PipelineRun> latest;
    Watchers watchers;
  };

  absl::StatusOr<std::optional<std::string>> FindLocked(const std::string& request_id,
                                                        const Digest& content) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetTooMany() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;

  mutable Mutex mutex_;
  absl::btree_map<std::string, Run> runs_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::string> run_of_request_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> ended_ ABSL_GUARDED_BY(mutex_);  // oldest first
  size_t ended_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t opened_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace crossmesh
