#pragma once

#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/base/mutex.h"
#include "controller/catalog/request_table.h"
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

// The id of an operation, "op-" and 16 hexadecimal digits: ids sort as the numbers do.
std::string OperationId(uint64_t number);

// What is stored of an operation. `bytes` are opaque here.
struct OperationRecord {
  uint64_t number = 0;
  std::string request_id;
  Digest content;  // of the request without its id
  std::string bytes;
};

// Operations and the request ids that named them. A finished operation is kept until 1,000 newer
// ones have finished, a request id for 24 hours: when so many are remembered that there is no room
// for another, new requests are refused, since to forget one early could run it twice. One commit
// when an operation begins, one when it ends. Request ids are not in the store: they end with this
// process. Thread-safe.
class OperationRecords {
 public:
  struct Options {
    int64_t finished_max = 1000;
    // 80 MiB of them; 12 new requests a second, all day.
    int64_t requests_max = int64_t{1} << 20;
    absl::Duration request_ids_for = absl::Hours(24);
  };

  OperationRecords(MetadataStore& store, uint64_t epoch, const Clock& clock, Options options);
  OperationRecords(MetadataStore& store, uint64_t epoch, const Clock& clock)
      : OperationRecords(store, epoch, clock, Options()) {}

  // The id of the operation that this request began before; nothing when it is new. AlreadyExists
  // names the request id when the content was another; ResourceExhausted: it is new, and there is
  // no room for it.
  absl::StatusOr<std::optional<std::string>> FindRequest(absl::string_view request_id,
                                                         const Digest& content) const;

  // Commits the intent: the operation and its request id did not exist and now do. Aborted when
  // they did, or when this controller is fenced; ResourceExhausted as above.
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
  bool IsTooOld(const RequestTable::Request& request) const;
  // ResourceExhausted when there is no room for another request.
  absl::Status CheckRoom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  MetadataStore& store_;
  const uint64_t epoch_;
  const Clock& clock_;
  const Options options_;

  mutable Mutex mutex_;
  std::deque<std::string> finished_ ABSL_GUARDED_BY(mutex_);  // oldest first
  RequestTable requests_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
