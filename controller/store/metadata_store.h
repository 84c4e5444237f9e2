#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

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

    friend bool operator==(const Write&, const Write&) = default;
  };
  uint64_t epoch = 0;  // of the controller; a lower one than ever seen is fenced
  std::vector<Requirement> requirements;
  std::vector<Write> writes;  // each key once
};

// A commit as those see it who follow the store.
struct StoredCommit {
  int64_t revision = 0;
  std::vector<StoreTransaction::Write> writes;  // in the order of the transaction

  friend bool operator==(const StoredCommit&, const StoredCommit&) = default;
};

// The metadata store: a few objects, read often, written by whole transactions, and followed commit
// by commit. Every implementation passes store_conformance.h. Thread-safe.
class MetadataStore {
 public:
  // The revision that all written objects have, once they are durable. Aborted: a requirement does
  // not hold (the key, what was required and what was found are named) or the epoch is fenced;
  // ResourceExhausted: full, and nothing is written; Unavailable: retry, and only a read says
  // whether it was written; DataLoss: the store has found damage, and nothing is written any more.
  using CommitDone = absl::AnyInvocable<void(absl::StatusOr<int64_t>)>;

  virtual ~MetadataStore() = default;

  // Calls `done` before it returns or later, on any thread, once; it must not block. What one
  // thread commits takes effect in that order. Reads see what is committed when `done` is called.
  virtual void CommitThen(StoreTransaction transaction, CommitDone done) = 0;
  // The same, and waits for it: not for threads that others wait for.
  absl::StatusOr<int64_t> Commit(StoreTransaction transaction);

  // NotFound names the key. Of all reads: Unavailable: not now; DataLoss: what is there is not what
  // was written.
  virtual absl::StatusOr<StoredObject> Get(absl::string_view key) const = 0;
  // The revision of an object, without its value; 0 when there is none.
  virtual absl::StatusOr<int64_t> RevisionOf(absl::string_view key) const = 0;
  // Objects whose key starts with `prefix` and is greater than `after`, by key, at most `limit`.
  virtual absl::StatusOr<std::vector<StoredObject>> List(absl::string_view prefix,
                                                         absl::string_view after,
                                                         int64_t limit) const = 0;

  // Of the newest commit that is durable; 0 before the first.
  virtual int64_t revision() const = 0;
  // The commits after `revision`, oldest first, whole and without a gap, at most `limit`. When
  // there is none, waits for one, and returns without any after `wait`. OutOfRange: some of them
  // are forgotten; names the oldest revision after which all are kept.
  virtual absl::StatusOr<std::vector<StoredCommit>> CommitsAfter(int64_t revision, int64_t limit,
                                                                 absl::Duration wait) const = 0;
};

}  // namespace crossmesh
