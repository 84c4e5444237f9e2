#pragma once

#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/base/mutex.h"
#include "controller/store/metadata_store.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// What is stored of an operation. `bytes` are opaque here.
struct OperationRecord {
  std::string id;
  std::string request_id;
  Digest content;  // of the request without its id
  std::string bytes;
};

// Operations and the request ids that named them. A finished operation is kept until 1,000 newer
// ones have finished, a request id for 24 hours. One commit when an operation begins, one when it
// ends. Thread-safe.
class OperationRecords {
 public:
  struct Options {
    int64_t finished_max = 1000;
    absl::Duration request_ids_for = absl::Hours(24);
  };

  OperationRecords(MetadataStore& store, uint64_t epoch, const Clock& clock, Options options);
  OperationRecords(MetadataStore& store, uint64_t epoch, const Clock& clock)
      : OperationRecords(store, epoch, clock, Options()) {}

  // The id of the operation that this request began before; nothing when it is new. AlreadyExists
  // names the request id when the content was another.
  absl::StatusOr<std::optional<std::string>> FindRequest(absl::string_view request_id,
                                                         const Digest& content) const;

  // Commits the intent: the operation and its request id did not exist and now do. Aborted when
  // they did, or when this controller is fenced.
  absl::Status Begin(const OperationRecord& record);
  // Commits the result, and forgets what is too old. NotFound when it never began.
  absl::Status Finish(absl::string_view id, std::string bytes);

  // The stored bytes. NotFound names the operation.
  absl::StatusOr<std::string> Get(absl::string_view id) const;
  // Newest first: ids and bytes of operations whose id is less than `before` (empty: all). Ids sort
  // by the time of their beginning.
  std::vector<std::pair<std::string, std::string>> List(absl::string_view before,
                                                        int64_t limit) const;

 private:
  struct OldRequest {
    std::string request_id;
    absl::Duration since;
  };

  // Adds the deletion of request ids that are too old.
  void ForgetRequests(StoreTransaction& transaction) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  MetadataStore& store_;
  const uint64_t epoch_;
  const Clock& clock_;
  const Options options_;

  mutable Mutex mutex_;
  std::deque<std::string> finished_ ABSL_GUARDED_BY(mutex_);  // oldest first
  std::deque<OldRequest> requests_ ABSL_GUARDED_BY(mutex_);   // oldest first
};

}  // namespace crossmesh
