#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// A stored object: opaque bytes under a key, with the revision of the commit that wrote it.
struct StoredObject {
  std::string key;
  std::string value;
  int64_t revision = 0;
};

// What a commit does, all or nothing.
struct StoreTransaction {
  struct Requirement {
    std::string key;
    int64_t revision = 0;  // that the object must have; 0: must not exist
  };
  struct Write {
    std::string key;
    std::optional<std::string> value;  // nothing: delete
  };
  uint64_t epoch = 0;  // of the controller; a lower one than ever seen is fenced
  std::vector<Requirement> requirements;
  std::vector<Write> writes;
};

// The metadata store: a few objects, read often, written by whole transactions. Every
// implementation passes store_conformance.h. Thread-safe.
class MetadataStore {
 public:
  virtual ~MetadataStore() = default;

  // Durable at return. Returns the revision that all written objects have. Aborted: a requirement
  // does not hold (the key, what was required and what was found are named) or the epoch is fenced;
  // ResourceExhausted: full; Unavailable: retry.
  virtual absl::StatusOr<int64_t> Commit(const StoreTransaction& transaction) = 0;
  // NotFound names the key.
  virtual absl::StatusOr<StoredObject> Get(absl::string_view key) const = 0;
  // The revision of an object, without its value; 0 when there is none.
  virtual absl::StatusOr<int64_t> RevisionOf(absl::string_view key) const = 0;
  // Objects whose key starts with `prefix` and is greater than `after`, by key, at most `limit`.
  virtual absl::StatusOr<std::vector<StoredObject>> List(absl::string_view prefix,
                                                         absl::string_view after,
                                                         int64_t limit) const = 0;
};

}  // namespace crossmesh
