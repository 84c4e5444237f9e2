#pragma once

#include "controller/store/metadata_store.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// A store, and word of a commit that fails as all later ones will: DataLoss, since it is damaged,
// or FailedPrecondition, since it is another one or was set back. Who has it should end.
// Thread-safe.
class MonitoredStore final : public MetadataStore {
 public:
  // `on_unusable` is called with the error, perhaps more than once, before the commit is done.
  MonitoredStore(std::shared_ptr<MetadataStore> store,
                 std::function<void(const absl::Status&)> on_unusable)
      : store_(std::move(store)), on_unusable_(std::move(on_unusable)) {}

  void CommitThen(StoreTransaction transaction, CommitDone done) override;
  absl::StatusOr<StoredObject> Get(absl::string_view key) const override {
    return store_->Get(key);
  }
  absl::StatusOr<int64_t> RevisionOf(absl::string_view key) const override {
    return store_->RevisionOf(key);
  }
  absl::StatusOr<std::vector<StoredObject>> List(absl::string_view prefix, absl::string_view after,
                                                 int64_t limit) const override {
    return store_->List(prefix, after, limit);
  }
  int64_t revision() const override { return store_->revision(); }
  absl::StatusOr<std::vector<StoredCommit>> CommitsAfter(int64_t revision, int64_t limit,
                                                         absl::Duration wait) const override {
    return store_->CommitsAfter(revision, limit, wait);
  }

 private:
  const std::shared_ptr<MetadataStore> store_;  // the process's
  const std::function<void(const absl::Status&)> on_unusable_;
};

}  // namespace crossmesh
