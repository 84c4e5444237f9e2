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

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// What is stored of a job: of an operation, or of a pipeline's run. `bytes` are opaque here.
struct JobRecord {
  uint64_t number = 0;
  std::string request_id;
  Digest content;  // of the request without its id
  std::string bytes;
};

// The jobs of one kind, and the request ids that named them. A finished job is kept until too many
// newer ones have finished, or too large ones, a request id for 24 hours: when so many are
// remembered that there is no room for another, new requests are refused, since to forget one early
// could run it twice. One commit when a job begins, one when it ends. Request ids are not in the
// store: they end with this process. Thread-safe.
class JobRecords {
 public:
  static constexpr absl::Duration kRequestIdsFor = absl::Hours(24);

  struct Options {
    std::string noun;       // what a job of this kind is called, in the store and for people
    std::string id_prefix;  // of its ids
    size_t finished_max = 1000;
    // Of those that have finished; the last one is kept, however large.
    size_t finished_bytes_max = std::numeric_limits<size_t>::max();
    // 80 MiB of them; 12 new requests a second, all day.
    int64_t requests_max = int64_t{1} << 20;
  };

  JobRecords(MetadataStore& store, uint64_t epoch, const Clock& clock, Options options);

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

  // Commits the intent: the job and its request id did not exist and now do. Aborted when they did,
  // or when this controller is fenced; ResourceExhausted as above.
  absl::Status Begin(const JobRecord& record);
  // Commits the result, and forgets what is too old. NotFound when it never began.
  absl::Status Finish(absl::string_view id, std::string bytes);

  // The stored bytes. NotFound names the job.
  absl::StatusOr<std::string> Get(absl::string_view id) const;
  // Newest first: ids and bytes of jobs whose id is less than `before` (empty: all). Ids sort by
  // the time of their beginning.
  std::vector<std::pair<std::string, std::string>> List(absl::string_view before,
                                                        int64_t limit) const;

 private:
  struct Finished {
    std::string id;
    size_t bytes = 0;
  };

  std::string KeyOf(absl::string_view id) const;
  // Whether the oldest one that has finished must go when another `bytes` come.
  bool TooMany(size_t forgotten, size_t forgotten_bytes, size_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsTooOld(const RequestTable::Request& request) const;
  // ResourceExhausted when there is no room for another request.
  absl::Status CheckRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  MetadataStore& store_;
  const uint64_t epoch_;
  const Clock& clock_;
  const Options options_;

  mutable Mutex mutex_;
  std::deque<Finished> finished_ ABSL_GUARDED_BY(mutex_);  // oldest first
  size_t finished_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  RequestTable requests_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
