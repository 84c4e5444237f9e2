#include "controller/store/monitored_store.h"

#include "common/testing/status_matchers.h"
#include "controller/store/memory_store.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Fails every commit.
class FailingStore final : public MetadataStore {
 public:
  explicit FailingStore(absl::Status error) : error_(std::move(error)) {}
  void CommitThen(StoreTransaction /*transaction*/, CommitDone done) override { done(error_); }
  absl::StatusOr<StoredObject> Get(absl::string_view /*key*/) const override { return error_; }
  absl::StatusOr<int64_t> RevisionOf(absl::string_view /*key*/) const override { return error_; }
  absl::StatusOr<std::vector<StoredObject>> List(absl::string_view /*prefix*/,
                                                 absl::string_view /*after*/,
                                                 int64_t /*limit*/) const override {
    return error_;
  }
  int64_t revision() const override { return 0; }
  absl::StatusOr<std::vector<StoredCommit>> CommitsAfter(int64_t /*revision*/, int64_t /*limit*/,
                                                         absl::Duration /*wait*/) const override {
    return error_;
  }

 private:
  const absl::Status error_;
};

TEST(MonitoredStoreTest, TellsOfWhatNoLaterCommitIsWithout) {
  for (const absl::Status& error :
       {absl::DataLossError("row 7"), absl::FailedPreconditionError("set back"),
        absl::AbortedError("fenced"), absl::UnavailableError("away"),
        absl::ResourceExhaustedError("full")}) {
    std::vector<absl::Status> told;
    const auto store =
        MakeMonitoredStore(std::make_shared<FailingStore>(error),
                           [&told](const absl::Status& why) { told.push_back(why); });
    EXPECT_EQ(store->Commit({}).status(), error);
    const bool is_final = absl::IsDataLoss(error) || absl::IsFailedPrecondition(error);
    EXPECT_EQ(told.size(), is_final ? 1 : 0) << error;
    if (is_final) EXPECT_EQ(told.front(), error);
  }
}

TEST(MonitoredStoreTest, IsTheStoreThatItHas) {
  bool told = false;
  const auto store = MakeMonitoredStore(std::make_shared<MemoryStore>(),
                                        [&told](const absl::Status&) { told = true; });
  ASSERT_OK_AND_ASSIGN(const int64_t revision,
                       store->Commit({.epoch = 1, .writes = {{.key = "a", .value = "1"}}}));
  EXPECT_EQ(store->revision(), revision);
  EXPECT_THAT(store->RevisionOf("a"), IsOkAndHolds(revision));
  ASSERT_OK_AND_ASSIGN(const StoredObject object, store->Get("a"));
  EXPECT_EQ(object.value, "1");
  ASSERT_OK_AND_ASSIGN(const std::vector<StoredObject> all, store->List("", "", 10));
  EXPECT_EQ(all.size(), 1);
  ASSERT_OK_AND_ASSIGN(const std::vector<StoredCommit> commits,
                       store->CommitsAfter(0, 10, absl::ZeroDuration()));
  EXPECT_EQ(commits.size(), 1);
  EXPECT_FALSE(told);
}

}  // namespace
}  // namespace crossmesh
