#include "common/base/clock.h"
#include "common/testing/temporary_folder.h"
#include "controller/store/sqlite/sqlite_store.h"
#include "controller/store/testing/store_conformance.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

const RealClock& RealTime() {
  static const RealClock clock;
  return clock;
}

// A store in a folder that goes with it.
class StoreInAFolder final : public MetadataStore {
 public:
  explicit StoreInAFolder(int64_t commits_kept)
      : store_(*SqliteStore::Open({.folder = folder_.PathOf("state"),
                                   .clock = RealTime(),
                                   .commits_kept = commits_kept,
                                   .reserve_bytes = 0})) {}

  void CommitThen(StoreTransaction transaction, CommitDone done) override {
    store_->CommitThen(std::move(transaction), std::move(done));
  }
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
  const TemporaryFolder folder_;
  const std::unique_ptr<SqliteStore> store_;
};

INSTANTIATE_TEST_SUITE_P(Sqlite, StoreConformance,
                         testing::Values(StoreFactory([](int64_t commits_kept) {
                           return std::make_unique<StoreInAFolder>(commits_kept);
                         })));

}  // namespace
}  // namespace crossmesh
