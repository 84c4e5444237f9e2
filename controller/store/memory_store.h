#pragma once

#include "common/base/mutex.h"
#include "controller/store/metadata_store.h"
#include "controller/store/object_table.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// Keeps everything in this process and loses it with it. Thread-safe.
class MemoryStore : public MetadataStore {
 public:
  // How many commits are kept for those who follow.
  explicit MemoryStore(size_t commits_kept = 1000) : table_(commits_kept) {}

  void CommitThen(StoreTransaction transaction, CommitDone done) override;
  absl::StatusOr<StoredObject> Get(absl::string_view key) const override { return table_.Get(key); }
  absl::StatusOr<int64_t> RevisionOf(absl::string_view key) const override {
    return table_.RevisionOf(key);
  }
  absl::StatusOr<std::vector<StoredObject>> List(absl::string_view prefix, absl::string_view after,
                                                 int64_t limit) const override {
    return table_.List(prefix, after, limit);
  }
  int64_t revision() const override { return table_.revision(); }
  absl::StatusOr<std::vector<StoredCommit>> CommitsAfter(int64_t revision, int64_t limit,
                                                         absl::Duration wait) const override {
    return table_.CommitsAfter(revision, limit, wait);
  }

 private:
  absl::StatusOr<int64_t> Apply(StoreTransaction transaction);
  absl::Status CheckRequirements(const StoreTransaction& transaction) const;

  ObjectTable table_;
  Mutex mutex_;  // for whole commits
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace crossmesh
