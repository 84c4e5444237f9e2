#pragma once

#include "common/base/mutex.h"
#include "controller/store/metadata_store.h"

#include <cstdint>
#include <string>

#include <absl/container/btree_map.h>

namespace crossmesh {

// Keeps everything in this process and loses it with it. Thread-safe.
class MemoryStore : public MetadataStore {
 public:
  absl::StatusOr<int64_t> Commit(const StoreTransaction& transaction) override;
  absl::StatusOr<StoredObject> Get(absl::string_view key) const override;
  absl::StatusOr<int64_t> RevisionOf(absl::string_view key) const override;
  absl::StatusOr<std::vector<StoredObject>> List(absl::string_view prefix, absl::string_view after,
                                                 int64_t limit) const override;

 private:
  struct Version {
    std::string value;
    int64_t revision = 0;
  };

  absl::Status CheckRequirements(const StoreTransaction& transaction) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  absl::btree_map<std::string, Version> objects_ ABSL_GUARDED_BY(mutex_);
  int64_t revision_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace crossmesh
