#include "controller/store/etcd/etcd_store.h"

#include "common/testing/status_matchers.h"
#include "controller/store/etcd/testing/etcd_process.h"
#include "controller/store/etcd/testing/etcd_terms.h"
#include "controller/store/testing/store_conformance.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

// Every store has a cluster of its own.
std::unique_ptr<MetadataStore> NewEmptyStore(int64_t commits_kept) {
  static const EtcdProcess etcd;
  static int clusters = 0;
  const std::string cluster = absl::StrCat("c", ++clusters);
  absl::StatusOr<std::unique_ptr<EtcdStore>> store =
      EtcdStore::Open({.etcd = etcd.options(),
                       .cluster = cluster,
                       .commits_kept = static_cast<size_t>(commits_kept)});
  EXPECT_OK(store.status());
  Lead(**store, *etcd.NewClient(), EtcdKeys(cluster), /*epoch=*/0);
  return *std::move(store);
}

INSTANTIATE_TEST_SUITE_P(Etcd, StoreConformance, testing::Values(StoreFactory(&NewEmptyStore)));

class EtcdStoreTest : public testing::Test {
 protected:
  std::unique_ptr<EtcdStore> Open() {
    absl::StatusOr<std::unique_ptr<EtcdStore>> store = EtcdStore::Open({.etcd = etcd_.options()});
    EXPECT_OK(store.status());
    return *std::move(store);
  }
  std::unique_ptr<EtcdStore> OpenAndLead(uint64_t epoch) {
    std::unique_ptr<EtcdStore> store = Open();
    Lead(*store, *client_, keys_, epoch);
    return store;
  }
  // How many keys there are below `prefix`.
  int64_t Count(const std::string& prefix) {
    etcdserverpb::RangeRequest request;
    request.set_key(prefix);
    request.set_range_end(EtcdPrefixEnd(prefix));
    return client_->Await(&EtcdClient::Range, request, absl::Seconds(10))->count();
  }

  const EtcdKeys keys_{"default"};
  EtcdProcess etcd_;
  std::unique_ptr<EtcdClient> client_ = etcd_.NewClient();
};

TEST_F(EtcdStoreTest, WhatOneStoreWroteTheNextOneReads) {
  const std::string large(3'000'000, 'x');
  int64_t revision = 0;
  {
    const std::unique_ptr<EtcdStore> store = OpenAndLead(1);
    ASSERT_OK(store->Commit({.epoch = 1, .writes = {{"a", "1"}, {"b", "2"}}}).status());
    ASSERT_OK_AND_ASSIGN(
        revision, store->Commit({.epoch = 1, .writes = {{"a", std::nullopt}, {"c", large}}}));
    EXPECT_EQ(store->Get("c")->value, large);
  }
  const std::unique_ptr<EtcdStore> store = Open();
  EXPECT_EQ(store->revision(), revision);
  EXPECT_THAT(store->Get("a"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(store->Get("b")->value, "2");
  EXPECT_EQ(store->Get("c")->value, large);
  EXPECT_EQ(store->RevisionOf("c").value(), revision);
  EXPECT_EQ(store->cluster().epoch, 1);
}

TEST_F(EtcdStoreTest, OneThatStandsByHearsOfEveryCommitWhole) {
  const std::unique_ptr<EtcdStore> leader = OpenAndLead(1);
  const std::unique_ptr<EtcdStore> follower = Open();
  const std::string large(1'500'000, 'x');
  ASSERT_OK_AND_ASSIGN(const int64_t revision,
                       leader->Commit({.epoch = 1, .writes = {{"a", "1"}, {"b", large}}}));
  EXPECT_THAT(
      follower->CommitsAfter(0, 10, absl::Seconds(30)),
      IsOkAndHolds(testing::ElementsAre(StoredCommit{revision, {{"a", "1"}, {"b", large}}})));
}

TEST_F(EtcdStoreTest, OnlyTheOneThatLeadsWrites) {
  const std::unique_ptr<EtcdStore> store = Open();
  const StoreTransaction write{.epoch = 1, .writes = {{"a", "1"}}};
  EXPECT_THAT(store->Commit(write),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("does not lead")));
  Lead(*store, *client_, keys_, /*epoch=*/1);
  EXPECT_OK(store->Commit(write).status());
  store->EndTerm();
  EXPECT_THAT(store->Commit(write), StatusIs(absl::StatusCode::kAborted));
}

TEST_F(EtcdStoreTest, ATermThatHasEndedBeforeItBeganStaysEnded) {
  const std::unique_ptr<EtcdStore> store = Open();
  // The first is asked for before its leader's key can have been seen, and waits for that.
  std::optional<absl::Status> begun;
  const int64_t fence = Usurp(*client_, keys_, 1);
  store->BeginTerm(fence + 1, 1, [&begun](absl::Status status) { begun = std::move(status); });
  store->EndTerm();
  Usurp(*client_, keys_, 2);
  EXPECT_THAT(store->Commit({.epoch = 1, .writes = {{"a", "1"}}}),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("does not lead")));
  EXPECT_THAT(*begun, StatusIs(absl::StatusCode::kAborted, HasSubstr("term has ended")));
}

TEST_F(EtcdStoreTest, NothingOfAnOldLeaderIsAcceptedOnceAnotherOneLeads) {
  const std::unique_ptr<EtcdStore> old = OpenAndLead(1);
  ASSERT_OK(old->Commit({.epoch = 1, .writes = {{"a", "old"}}}).status());
  const std::unique_ptr<EtcdStore> next = OpenAndLead(2);
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(old->Commit({.epoch = 1, .writes = {{"a", "late"}}}),
                StatusIs(absl::StatusCode::kAborted, HasSubstr("epoch 1 is fenced")));
  }
  // Nor when it takes the epoch of the other one.
  EXPECT_THAT(old->Commit({.epoch = 2, .writes = {{"a", "late"}}}),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("expected the leader of revision")));
  EXPECT_EQ(next->Get("a")->value, "old");
  EXPECT_OK(next->Commit({.epoch = 2, .writes = {{"a", "new"}}}).status());
}

TEST_F(EtcdStoreTest, WhatAnUnfinishedCommitLeftGoesWhenTheNextTermBegins) {
  {
    const std::unique_ptr<EtcdStore> store = OpenAndLead(1);
    ASSERT_OK(store->Commit({.epoch = 1, .writes = {{"a", std::string(2'000'000, 'x')}}}).status());
  }
  etcdserverpb::TxnRequest chunk;
  chunk.add_success()->mutable_request_put()->set_key(keys_.Chunk("unfinished-0", 0));
  ASSERT_OK(client_->Await(&EtcdClient::Txn, chunk, absl::Seconds(10)).status());
  EXPECT_EQ(Count(keys_.chunks()), 3);
  const std::unique_ptr<EtcdStore> store = OpenAndLead(2);
  EXPECT_EQ(Count(keys_.chunks()), 2);
  EXPECT_EQ(store->Get("a")->value.size(), 2'000'000);
  ASSERT_OK(store->Commit({.epoch = 2, .writes = {{"a", std::nullopt}}}).status());
  EXPECT_EQ(Count(keys_.chunks()), 0);
}

TEST_F(EtcdStoreTest, MoreThanEtcdTakesAtOnceIsRefusedWithTheFlagThatSaysSo) {
  const std::unique_ptr<EtcdStore> store = OpenAndLead(1);
  StoreTransaction most{.epoch = 1};
  for (int i = 0; i < 4095; ++i) most.writes.push_back({absl::StrCat(i), "1"});
  EXPECT_OK(store->Commit(most).status());
  most.writes.push_back({"more", "1"});
  EXPECT_THAT(store->Commit(most),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4097 operations and ")));
  EXPECT_THAT(store->Get("more"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(EtcdStoreTest, MoreThanAPageIsReadWhateverItsSize) {
  // Pages of more keys than these would be larger than a message may be.
  constexpr int kObjects = 700;
  {
    const std::unique_ptr<EtcdStore> store = OpenAndLead(1);
    for (int i = 0; i < kObjects; i += 20) {
      StoreTransaction transaction{.epoch = 1};
      for (int k = i; k < i + 20; ++k) {
        transaction.writes.push_back({absl::StrCat("k", k), std::string(20'000, 'x')});
      }
      ASSERT_OK(store->Commit(transaction).status());
    }
  }
  const std::unique_ptr<EtcdStore> store = Open();
  EXPECT_EQ(store->List("k", "", 10 * kObjects)->size(), kObjects);
}

}  // namespace
}  // namespace crossmesh
