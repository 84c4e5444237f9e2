// What becomes of a store when its etcd, or the way to it, fails.

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/testing/patience.h"
#include "common/testing/status_matchers.h"
#include "controller/store/etcd/etcd_store.h"
#include "controller/store/etcd/testing/etcd_process.h"
#include "controller/store/etcd/testing/etcd_terms.h"
#include "controller/store/etcd/testing/unix_proxy.h"
#include "crossmesh/v1/etcd_record.pb.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

// Of a call: short, so that what fails fails soon.
constexpr absl::Duration kFaultTimeout = absl::Seconds(1);

class EtcdFaultTest : public testing::Test {
 protected:
  std::unique_ptr<EtcdStore> Open(const std::string& endpoint) {
    absl::StatusOr<std::unique_ptr<EtcdStore>> store =
        EtcdStore::Open({.etcd = {.endpoints = {endpoint}}, .timeout = kFaultTimeout});
    EXPECT_OK(store.status());
    return *std::move(store);
  }
  std::unique_ptr<EtcdStore> OpenAndLead(const std::string& endpoint, uint64_t epoch) {
    std::unique_ptr<EtcdStore> store = Open(endpoint);
    Lead(*store, *client_, keys_, epoch);
    return store;
  }
  static StoreTransaction Put(std::string key, std::string value, uint64_t epoch = 1) {
    return {.epoch = epoch, .writes = {{std::move(key), std::move(value)}}};
  }
  // Writes until it works, perhaps more than once.
  static int64_t MustCommit(EtcdStore& store, const StoreTransaction& transaction) {
    const Patience patience;
    for (;; patience.Check()) {
      const absl::StatusOr<int64_t> revision = store.Commit(transaction);
      if (revision.ok()) return *revision;
      EXPECT_THAT(revision, StatusIs(absl::StatusCode::kUnavailable));
    }
  }
  void Compact(int64_t revision) {
    etcdserverpb::CompactionRequest request;
    request.set_revision(revision);
    ASSERT_OK(client_->Await(&EtcdClient::Compact, request, absl::Seconds(10)).status());
  }

  const EtcdKeys keys_{"default"};
  EtcdProcess etcd_;
  std::unique_ptr<EtcdClient> client_ = etcd_.NewClient();
};

TEST(EtcdAway, OpeningSaysSoAndWhichEndpointDoesNotAnswer) {
  EtcdProcess etcd(/*start=*/false);
  const RealClock clock;
  const absl::Duration start = clock.Monotonic();
  EXPECT_THAT(EtcdStore::Open({.etcd = etcd.options(), .timeout = kFaultTimeout}).status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr(absl::StrCat("etcd at ", etcd.endpoint()))));
  EXPECT_LT(clock.Monotonic() - start, absl::Seconds(5));
  etcd.Start();
  EXPECT_OK(EtcdStore::Open({.etcd = etcd.options()}).status());
}

TEST_F(EtcdFaultTest, WhileEtcdIsKilledReadsGoOnAndWhenItIsBackSoDoWrites) {
  const std::unique_ptr<EtcdStore> store = OpenAndLead(etcd_.endpoint(), 1);
  const std::unique_ptr<EtcdStore> follower = Open(etcd_.endpoint());
  const int64_t first = MustCommit(*store, Put("a", "1"));
  etcd_.Kill();
  EXPECT_THAT(store->Commit(Put("a", "2")), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(store->Get("a")->value, "1");
  etcd_.Start();
  const int64_t second = MustCommit(*store, Put("a", "3"));
  const Patience patience;
  while (follower->revision() < second) patience.Check();
  EXPECT_EQ(store->CommitsAfter(first, 10, absl::ZeroDuration())->back().revision, second);
  EXPECT_EQ(*follower->CommitsAfter(first, 10, absl::ZeroDuration()),
            *store->CommitsAfter(first, 10, absl::ZeroDuration()));
  EXPECT_OK(store->health());
}

// What was sent to an etcd that did not answer may be done when it goes on: before the next commit
// or never, but not after it.
TEST_F(EtcdFaultTest, ACommitThatWasGivenUpIsNeverDoneAfterTheNextOne) {
  const std::unique_ptr<EtcdStore> store = OpenAndLead(etcd_.endpoint(), 1);
  for (int round = 0; round < 3; ++round) {
    etcd_.Stop();
    const StoreTransaction given_up = Put("k", absl::StrCat("given up ", round));
    EXPECT_THAT(store->Commit(given_up), StatusIs(absl::StatusCode::kUnavailable));
    Thread waker("waker", [this] { etcd_.Continue(); });
    const std::string value = absl::StrCat("last ", round);
    const int64_t revision = MustCommit(*store, Put("k", value));
    waker.Join();
    EXPECT_EQ(store->Get("k")->value, value);
    MustCommit(*store, Put("other", "1"));  // all that was on its way has come by then
    EXPECT_EQ(store->Get("k")->value, value);
    EXPECT_EQ(store->RevisionOf("k").value(), revision);
  }
}

TEST_F(EtcdFaultTest, ATermBeginsWhenAllThatWasWrittenBeforeCanBeRead) {
  UnixProxy proxy(etcd_.socket());
  const std::unique_ptr<EtcdStore> old = OpenAndLead(etcd_.endpoint(), 1);
  const std::unique_ptr<EtcdStore> next = Open(proxy.endpoint());
  const int64_t first = MustCommit(*old, Put("k", "first"));
  ASSERT_EQ(next->CommitsAfter(first - 1, 1, absl::Seconds(30))->size(), 1);
  proxy.Delay(absl::Milliseconds(50));
  for (int i = 0; i < 5; ++i) MustCommit(*old, Put("k", absl::StrCat(i)));
  Lead(*next, *client_, keys_, 2);
  EXPECT_EQ(next->Get("k")->value, "4");
}

// Two are a majority. The one that is back has to hear of what it missed.
TEST(EtcdMembers, AStoreOutlivesEachOfThreeMembers) {
  const EtcdKeys keys("default");
  EtcdProcess etcd(/*start=*/true, /*members=*/3);
  const auto open = [&etcd] {
    absl::StatusOr<std::unique_ptr<EtcdStore>> store =
        EtcdStore::Open({.etcd = etcd.options(), .timeout = absl::Seconds(1)});
    EXPECT_OK(store.status());
    return *std::move(store);
  };
  const std::unique_ptr<EtcdStore> store = open();
  const std::unique_ptr<EtcdStore> follower = open();
  Lead(*store, *etcd.NewClient(), keys, 1);
  int64_t last = 0;
  for (int member = 0; member < 3; ++member) {
    etcd.Kill(member);
    const Patience patience;
    absl::StatusOr<int64_t> revision = absl::UnavailableError("");
    const std::string value = absl::StrCat("without ", member);
    while (!revision.ok()) {
      revision = store->Commit({.epoch = 1, .writes = {{"k", value}}});
      patience.Check();
    }
    ASSERT_OK_AND_ASSIGN(const std::vector<StoredCommit> heard,
                         follower->CommitsAfter(*revision - 1, 10, absl::Seconds(30)));
    ASSERT_EQ(heard.size(), 1);
    EXPECT_EQ(heard[0].writes[0].value, value);
    EXPECT_GT(*revision, last);
    last = *revision;
    etcd.Start(member);
  }
}

TEST_F(EtcdFaultTest, ASlowWayMakesCommitsSlowAndNothingElse) {
  UnixProxy proxy(etcd_.socket());
  const std::unique_ptr<EtcdStore> store = OpenAndLead(proxy.endpoint(), 1);
  proxy.Delay(absl::Milliseconds(40));
  const RealClock clock;
  const absl::Duration start = clock.Monotonic();
  for (int i = 0; i < 5; ++i) EXPECT_OK(store->Commit(Put("k", absl::StrCat(i))).status());
  EXPECT_GE(clock.Monotonic() - start, absl::Milliseconds(5 * 80));
  EXPECT_EQ(store->Get("k")->value, "4");
}

TEST_F(EtcdFaultTest, AfterAPartitionAStoreHearsOfEverythingItMissed) {
  UnixProxy proxy(etcd_.socket());
  const std::unique_ptr<EtcdStore> store = OpenAndLead(etcd_.endpoint(), 1);
  const std::unique_ptr<EtcdStore> follower = Open(proxy.endpoint());
  const int64_t start = MustCommit(*store, Put("k", "first"));
  ASSERT_EQ(follower->CommitsAfter(start - 1, 10, absl::Seconds(30))->size(), 1);
  proxy.Cut();
  for (int i = 0; i < 20; ++i) MustCommit(*store, Put("k", absl::StrCat(i)));
  const std::vector<StoredCommit> missed = *store->CommitsAfter(start, 100, absl::ZeroDuration());
  ASSERT_GE(missed.size(), 20);
  EXPECT_EQ(follower->Get("k")->value, "first");
  proxy.Heal();
  std::vector<StoredCommit> heard;
  while (heard.size() < missed.size()) {
    const int64_t after = heard.empty() ? start : heard.back().revision;
    ASSERT_OK_AND_ASSIGN(const std::vector<StoredCommit> commits,
                         follower->CommitsAfter(after, 100, absl::Seconds(30)));
    ASSERT_FALSE(commits.empty());
    heard.insert(heard.end(), commits.begin(), commits.end());
  }
  EXPECT_EQ(heard, missed);
}

TEST_F(EtcdFaultTest, WhenWhatAStoreMissedIsCompactedItReadsEverythingAgain) {
  UnixProxy proxy(etcd_.socket());
  const std::unique_ptr<EtcdStore> store = OpenAndLead(etcd_.endpoint(), 1);
  MustCommit(*store, Put("gone", "1"));
  const std::unique_ptr<EtcdStore> follower = Open(proxy.endpoint());
  const int64_t start = follower->revision();
  proxy.Cut();
  MustCommit(*store, {.epoch = 1, .writes = {{"gone", std::nullopt}}});
  MustCommit(*store, Put("large", std::string(2'000'000, 'x')));
  const int64_t last = MustCommit(*store, Put("k", "last"));
  Compact(last);
  proxy.Heal();
  const Patience patience;
  while (follower->revision() < last) patience.Check();
  EXPECT_THAT(follower->CommitsAfter(start, 10, absl::ZeroDuration()),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr(absl::StrCat("at least ", last))));
  EXPECT_THAT(follower->Get("gone"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(follower->Get("large")->value.size(), 2'000'000);
  const int64_t next = MustCommit(*store, Put("k", "next"));
  EXPECT_THAT(follower->CommitsAfter(last, 10, absl::Seconds(30)),
              IsOkAndHolds(testing::ElementsAre(StoredCommit{next, {{"k", "next"}}})));
}

TEST_F(EtcdFaultTest, WhatSomethingElseWroteIsReadAsItIsAndWritingGoesOn) {
  const std::unique_ptr<EtcdStore> store = OpenAndLead(etcd_.endpoint(), 1);
  MustCommit(*store, Put("a", "1"));
  v1::EtcdObjectRecord record;
  record.set_inline_value("by hand");
  etcdserverpb::TxnRequest request;
  etcdserverpb::PutRequest& put = *request.add_success()->mutable_request_put();
  put.set_key(keys_.Object("a"));
  put.set_value(record.SerializeAsString());
  ASSERT_OK(client_->Await(&EtcdClient::Txn, request, absl::Seconds(10)).status());
  MustCommit(*store, Put("b", "2"));
  EXPECT_EQ(store->Get("a")->value, "by hand");
  EXPECT_EQ(store->Get("b")->value, "2");
}

TEST_F(EtcdFaultTest, AnEtcdOfAnotherClusterIsRefused) {
  const std::unique_ptr<EtcdStore> store = Open(etcd_.endpoint());
  EtcdStore::Options options{.etcd = etcd_.options(), .known = store->cluster()};
  EXPECT_OK(EtcdStore::Open(options).status());
  options.known->identity = "another";
  EXPECT_THAT(EtcdStore::Open(options).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("expected cluster another, found ")));
  options.known = store->cluster();
  options.cluster = "new";
  EXPECT_THAT(EtcdStore::Open(options).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found none; name the")));
}

TEST_F(EtcdFaultTest, AnEtcdThatIsSetBackToABackupIsRefusedByWhoKnewItBetter) {
  const std::string backup = absl::StrCat(etcd_.data_folder(), ".backup");
  const std::unique_ptr<EtcdStore> store = OpenAndLead(etcd_.endpoint(), 1);
  MustCommit(*store, Put("a", "1"));
  etcd_.Kill();
  std::filesystem::copy(etcd_.data_folder(), backup, std::filesystem::copy_options::recursive);
  etcd_.Start();
  MustCommit(*store, Put("a", "2"));
  const EtcdCluster known = store->cluster();
  etcd_.Kill();
  std::filesystem::remove_all(etcd_.data_folder());
  std::filesystem::rename(backup, etcd_.data_folder());
  etcd_.Start();
  const Patience patience;
  while (store->health().ok()) patience.Check();
  EXPECT_THAT(store->health(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("was set back: expected revision")));
  EXPECT_THAT(store->Commit(Put("a", "3")), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(store->Get("a")->value, "2");
  EXPECT_THAT(EtcdStore::Open({.etcd = etcd_.options(), .known = known}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  // Whoever knows nothing believes it.
  EXPECT_EQ(Open(etcd_.endpoint())->Get("a")->value, "1");
}

// Two stores write as fast as they can, while the one that leads changes: of the commits in etcd,
// none has a lower epoch than the one before.
TEST_F(EtcdFaultTest, WhileLeadersChangeNoCommitOfASupersededEpochIsAccepted) {
  constexpr uint64_t kTerms = 10;
  const std::unique_ptr<EtcdStore> stores[] = {Open(etcd_.endpoint()), Open(etcd_.endpoint())};
  const std::unique_ptr<EtcdStore> follower = Open(etcd_.endpoint());
  std::atomic<uint64_t> epochs[2] = {0, 0};
  std::atomic<bool> over = false;
  std::vector<Thread> writers;
  for (const int i : {0, 1}) {
    writers.emplace_back("writer", [&, i] {
      while (!over) {
        const uint64_t epoch = epochs[i];
        (void)stores[i]->Commit(Put("epoch", absl::StrCat(epoch), epoch));
      }
    });
  }
  for (uint64_t term = 1; term <= kTerms; ++term) {
    epochs[term % 2] = term;
    Lead(*stores[term % 2], *client_, keys_, term);
    MustCommit(*stores[term % 2], Put("epoch", absl::StrCat(term), term));
  }
  over = true;
  for (Thread& writer : writers) writer.Join();
  const int64_t last = stores[kTerms % 2]->revision();
  uint64_t highest = 0;
  int64_t commits = 0;
  for (int64_t at = 0; at < last; ++commits) {
    ASSERT_OK_AND_ASSIGN(const std::vector<StoredCommit> heard,
                         follower->CommitsAfter(at, 1, absl::Seconds(30)));
    ASSERT_EQ(heard.size(), 1);
    at = heard[0].revision;
    const uint64_t epoch = std::stoull(*heard[0].writes[0].value);
    EXPECT_GE(epoch, highest);
    highest = epoch;
  }
  EXPECT_EQ(highest, kTerms);
  EXPECT_GE(commits, kTerms);
}

}  // namespace
}  // namespace crossmesh
