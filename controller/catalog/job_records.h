#pragma once

#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/base/mutex.h"
#include "controller/catalog/request_table.h"
#include "controller/store/metadata_store.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_set.h>
#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// What is stored of a job: of an operation, or of a pipeline's run. `shown` and `resumption` are
// opaque here.
struct JobRecord {
  uint64_t number = 0;
  std::string request_id;
  Digest content;          // of the request without its id
  std::string shown;       // the job as clients see it
  std::string resumption;  // what another controller needs to take it up; empty once it has ended
};

// The jobs of one kind, and the request ids that named them. A finished job is kept until too many
// newer ones have finished, or too large ones, a request id for a day: when so many are
// remembered that there is no room for another, new requests are refused, since to forget one early
// could run it twice. One commit when a job begins, one when it ends, and one for each progress
// that must outlive this controller. A commit that is answered with Unavailable may have been
// written: until one of the same job succeeds, a refusal is Unavailable as well, and its intent may
// be committed again. Thread-safe; only its controller, of the store's highest epoch, writes here.
class JobRecords {
 public:
  struct Options {
    std::string noun;       // what a job of this kind is called, in the store and for people
    std::string id_prefix;  // of its ids
    size_t finished_max = 1000;
    // Of those that have finished; the last one is kept, however large.
    size_t finished_bytes_max = std::numeric_limits<size_t>::max();
    // How long request ids are remembered, and how many at most: 80 MiB of them, and 12 new
    // requests a second, all day.
    absl::Duration request_ids_for = absl::Hours(24);
    int64_t requests_max = int64_t{1} << 20;
  };

  // A job that had not ended when a former controller did.
  struct Unfinished {
    uint64_t number = 0;
    Digest content;
    std::string shown;
    std::string resumption;
    std::string progress;  // as it was recorded last; empty when it never was
  };

  JobRecords(MetadataStore& store, uint64_t epoch, const Clock& clock, Options options);

  // Reads what a former controller has left, before anything else is asked: jobs that had not
  // ended, oldest first. The store's errors; DataLoss names a record that does not parse.
  absl::StatusOr<std::vector<Unfinished>> Load();
  // Of all jobs that are known since then; 0: there are none.
  uint64_t newest_loaded() const {
    const MutexLock lock(mutex_);
    return newest_loaded_;
  }

  // How many are remembered.
  struct Counts {
    int64_t finished = 0;
    int64_t requests = 0;
  };
  Counts counts() const;

  const std::string& noun() const { return options_.noun; }
  // The prefix and 16 hexadecimal digits: ids sort as the numbers do.
  std::string IdOf(uint64_t number) const;
  // Does the text have the form of an id?
  bool IsId(absl::string_view text) const;

  // The id of the job that this request began before; nothing when it is new. AlreadyExists names
  // the request id when the content was another; ResourceExhausted: it is new, and there is no room
  // for it.
  absl::StatusOr<std::optional<std::string>> FindRequest(absl::string_view request_id,
                                                         const Digest& content) const;

  // Called at once or later, by any thread.
  using Done = absl::AnyInvocable<void(absl::Status)>;
  // Commits the intent: the job and its request id did not exist and now do. Aborted when they did,
  // or when this controller is fenced; ResourceExhausted as above.
  void Begin(const JobRecord& record, Done done);
  // Commits another intent in place of the job's present one. NotFound when it never began.
  void Amend(const JobRecord& record, Done done);
  // Commits how far the job has come, beside its intent: an object of its own, until the job has
  // ended. NotFound when it never began.
  void RecordProgress(uint64_t number, std::string progress, Done done);
  // Commits the result, and forgets what is too old. NotFound when it never began.
  void Finish(const JobRecord& record, Done done);

  // The stored job, as clients see it. NotFound names it.
  absl::StatusOr<std::string> Get(absl::string_view id) const;
  // Newest first: ids of jobs, and what clients see of them, whose id is less than `before` (empty:
  // all). Ids sort by the time of their beginning.
  std::vector<std::pair<std::string, std::string>> List(absl::string_view before,
                                                        int64_t limit) const;

 private:
  struct Finished {
    std::string id;
    size_t bytes = 0;
  };

  std::string KeyOf(absl::string_view id) const;
  std::string RequestKeyOf(absl::string_view id) const;
  std::string ProgressKeyOf(absl::string_view id) const;
  absl::Status LoadRequest(const StoredObject& object) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Nothing when it has ended.
  absl::StatusOr<std::optional<Unfinished>> LoadJob(const StoredObject& object)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether this request may begin now; then, until its commit is done, no other of its id may.
  // Keys of requests that are to be erased by that commit.
  absl::StatusOr<std::vector<std::string>> Reserve(const JobRecord& record);
  // Whether the oldest one that has finished must go when another `bytes` come.
  bool TooMany(size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unfinish(absl::string_view id, std::deque<Finished> forgotten);
  bool IsUncertain(uint64_t number) const;
  // What the store has answered to a commit of a job, as callers are to hear it.
  absl::Status Settle(uint64_t number, const absl::Status& answer);
  // How long controllers of this store have served, each by a clock that never goes back and that
  // nobody sets: by this requests grow old.
  absl::Duration Served() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsTooOld(const RequestTable::Request& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // ResourceExhausted when there is no room for another request.
  absl::Status CheckRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  MetadataStore& store_;
  const uint64_t epoch_;
  const Clock& clock_;
  const Options options_;

  const absl::Duration start_;  // monotonic

  mutable Mutex mutex_;
  absl::Duration served_before_ ABSL_GUARDED_BY(mutex_);  // by former controllers
  uint64_t newest_loaded_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Finished> finished_ ABSL_GUARDED_BY(mutex_);  // oldest first
  size_t finished_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  RequestTable requests_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<Digest> beginning_ ABSL_GUARDED_BY(mutex_);    // ids of requests
  absl::flat_hash_set<uint64_t> uncertain_ ABSL_GUARDED_BY(mutex_);  // numbers of jobs
  // Keys of requests that are forgotten, and still in the store.
  std::deque<std::string> stale_requests_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
