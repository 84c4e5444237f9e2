#pragma once

#include "common/base/mutex.h"
#include "controller/store/metadata_store.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// What a store holds, in memory: its objects, and its newest commits for those who follow it. The
// reading half of a MetadataStore, whose methods of the same names it has. Thread-safe.
class ObjectTable {
 public:
  // How many commits are kept for those who follow.
  explicit ObjectTable(size_t commits_kept) : commits_kept_(commits_kept) {}

  // What is read from now on: the state after the commit `revision`, 0 before the first. The
  // commits that led to it are forgotten, unless it is the state already.
  void Reset(std::vector<StoredObject> objects, int64_t revision);
  // A commit that is durable. Its revision is greater than all before, perhaps by more than one.
  void Apply(StoredCommit commit);

  absl::StatusOr<StoredObject> Get(absl::string_view key) const;
  int64_t RevisionOf(absl::string_view key) const;
  std::vector<StoredObject> List(absl::string_view prefix, absl::string_view after,
                                 int64_t limit) const;
  int64_t revision() const;
  absl::StatusOr<std::vector<StoredCommit>> CommitsAfter(int64_t revision, int64_t limit,
                                                         absl::Duration wait) const;

 private:
  struct Version {
    std::string value;
    int64_t revision = 0;
  };

  // Waits until the newest commit is this one or a later one, at most so long.
  void AwaitRevision(int64_t revision, absl::Duration wait) const;

  const size_t commits_kept_;
  mutable Mutex mutex_;
  mutable CondVar has_changed_;
  absl::btree_map<std::string, Version> objects_ ABSL_GUARDED_BY(mutex_);
  std::deque<StoredCommit> commits_ ABSL_GUARDED_BY(mutex_);  // the newest, oldest first
  int64_t forgotten_ ABSL_GUARDED_BY(mutex_) = 0;  // the newest of those that are not kept
  int64_t revision_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace crossmesh
