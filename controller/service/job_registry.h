#pragma once

#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/base/mutex.h"
#include "controller/catalog/job_records.h"
#include "controller/dispatch/job_sink.h"
#include "controller/dispatch/task_queue.h"
#include "crossmesh/v1/operation_service.pb.h"
#include "crossmesh/v1/pipeline_service.pb.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/container/flat_hash_map.h>
#include <absl/functional/any_invocable.h>
#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

class JobNumbers;

// All jobs of one kind, as clients see them: Subject is v1.Operation or v1.PipelineRun. Those that
// run it has with their latest message, those that have ended are in the records. It knows which
// request began which job, and the watchers. Thread-safe.
template <typename Subject>
class JobRegistry final : public JobSink<Subject> {
 public:
  struct Options {
    JobRecords& records;
    JobNumbers& numbers;
    TaskQueue& queue;  // on which jobs are carried out; watchers are called on it as well
    const Clock& clock;
    // Told when a job that has not ended goes from one state to another; a state is 0 before the
    // first and after the last. Called by any thread.
    std::function<void(int from, int to)> on_state = nullptr;
  };
  explicit JobRegistry(const Options& options) : options_(options) {}

  // A job that is new: as clients see it before anything has happened.
  struct Entry {
    Subject job;
    uint64_t number = 0;
  };
  // The id of the job that this request, whose id is in `first`, began before or begins now. For a
  // new one `begin` is called: when it fails, the job never was, and its watchers are told why. Ids
  // grow, also from one controller to the next. AlreadyExists: the request id began a job with
  // other content; ResourceExhausted: as JobRecords::FindRequest; Unavailable: after RefuseNew.
  absl::StatusOr<std::string> Begin(Subject first, const Digest& content,
                                    absl::FunctionRef<absl::Status(Entry)> begin);
  // Reads what a former controller has left, as JobRecords::Load, before anything is begun: numbers
  // go on beyond all that it has given out.
  absl::StatusOr<std::vector<JobRecords::Unfinished>> Load();
  // Takes up a job of a former controller, as `begin` does, which is given what is needed for that.
  // DataLoss: what is stored of it does not parse.
  absl::Status Resume(const JobRecords::Unfinished& job,
                      absl::FunctionRef<absl::Status(Entry, const std::string& resumption)> begin);
  // No new job is begun from now on.
  void RefuseNew() { refusing_ = true; }

  // Hears of a job on the queue, and must not block: of the job as soon as it is on record, and at
  // every change; the last one has ended. Instead, a status: there is no such job (any more), or
  // the controller stops. False: enough.
  using Watcher = std::function<bool(const absl::StatusOr<std::shared_ptr<const Subject>>&)>;
  // The number of the watch.
  uint64_t Watch(const std::string& id, Watcher watcher);
  void Unwatch(const std::string& id, uint64_t watch);
  // Ends all watches.
  void DismissWatchers(const absl::Status& why);

  // Does the text have the form of an id of such a job?
  bool IsId(const std::string& text) const { return options_.records.IsId(text); }
  // NotFound names the job.
  absl::StatusOr<std::shared_ptr<const Subject>> Get(const std::string& id) const;
  // Newest first, those with an id less than `before` (empty: all).
  std::vector<std::shared_ptr<const Subject>> List(const std::string& before, int64_t limit) const;

  using typename JobSink<Subject>::Done;
  void Commit(std::shared_ptr<const Subject> intent, std::string resumption, Done done) override;
  void RecordProgress(const std::string& id, std::string progress, Done done) override;
  void OnChange(std::shared_ptr<const Subject> job) override;
  void Finish(std::shared_ptr<const Subject> job, Done done) override;

  // Between two tries to record an end, while the store takes nothing.
  static constexpr absl::Duration kRecordPause = absl::Seconds(1);

 private:
  // By their numbers: told in the order in which they came, which no hash may decide.
  using Watchers = absl::btree_map<uint64_t, Watcher>;
  // A job that has ended, on its way into the records.
  struct Ending {
    std::shared_ptr<const Subject> job;
    Done done;
  };
  struct Running {
    uint64_t number = 0;
    Digest content;
    std::shared_ptr<const Subject> latest;
    bool recorded = false;    // an intent is committed; only then is the job known to anybody
    bool committing = false;  // an intent is on its way
    std::shared_ptr<Ending> ending;  // that waits for it
    Watchers watchers;
  };

  absl::StatusOr<std::optional<std::string>> Find(const std::string& request_id,
                                                  const Digest& content) const;
  absl::StatusOr<std::optional<std::string>> FindRunning(const std::string& request_id,
                                                         const Digest& content) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::string> Start(Entry entry, absl::FunctionRef<absl::Status(Entry)> begin);
  Running TakeOut(const std::string& id);
  JobRecord RecordOf(const Running& running, const Subject& shown) const;
  // On the queue, when an intent is committed, or refused.
  void OnIntent(const std::string& id, const absl::Status& status);
  void Record(std::shared_ptr<Ending> ending);
  void OnRecorded(const std::shared_ptr<Ending>& ending, const absl::Status& status);
  void End(const std::shared_ptr<Ending>& ending, const absl::Status& status);
  // Shows the change, and returns who is to be told: nobody before the job is on record.
  Watchers Change(std::shared_ptr<const Subject> job);
  void Tell(const Watchers& watchers, const std::shared_ptr<const Subject>& job);
  void AddWatcher(const std::string& id, uint64_t watch, const Watcher& watcher);
  void TellState(int from, int to) const;

  const Options options_;
  std::atomic<bool> refusing_ = false;

  mutable Mutex mutex_;
  absl::btree_map<std::string, Running> running_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::string> running_request_ ABSL_GUARDED_BY(mutex_);
  uint64_t watches_ ABSL_GUARDED_BY(mutex_) = 0;
};

extern template class JobRegistry<v1::Operation>;
extern template class JobRegistry<v1::PipelineRun>;

}  // namespace crossmesh
