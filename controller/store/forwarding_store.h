#pragma once

#include "controller/store/metadata_store.h"

#include <cstdint>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// Does by another store all that a derived one does not do itself. As thread-safe as that store.
class ForwardingStore : public MetadataStore {
 public:
  void CommitThen(StoreTransaction transaction, CommitDone done) override {
    store_.CommitThen(std::move(transaction), std::move(done));
  }
  absl::StatusOr<StoredObject> Get(absl::string_view key) const override { return store_.Get(key); }
  absl::StatusOr<int64_t> RevisionOf(absl::string_view key) const override {
    return store_.RevisionOf(key);
  }
  absl::StatusOr<std::vector<StoredObject>> List(absl::string_view prefix, absl::string_view after,
                                                 int64_t limit) const override {
    return store_.List(prefix, after, limit);
  }
  int64_t revision() const override { return store_.revision(); }
  absl::StatusOr<std::vector<StoredCommit>> CommitsAfter(int64_t revision, int64_t limit,
                                                         absl::Duration wait) const override {
    return store_.CommitsAfter(revision, limit, wait);
  }

 protected:
  // It outlives this.
  explicit ForwardingStore(MetadataStore& store) : store_(store) {}

  MetadataStore& store() const { return store_; }

 private:
  MetadataStore& store_;
};

}  // namespace crossmesh
