#pragma once

#include "common/base/mutex.h"
#include "common/base/thread.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "controller/store/metadata_store.h"
#include "controller/store/testing/store_clients.h"
#include "controller/store/testing/store_fixture.h"
#include "controller/store/testing/store_following.h"  // its tests
#include "controller/store/testing/store_history.h"

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {

TEST_P(StoreConformance, AnObjectIsReadAsItWasWrittenWithTheRevisionOfItsCommit) {
  ASSERT_OK_AND_ASSIGN(const int64_t revision, store_->Commit(Put("mesh/a", "x")));
  ASSERT_OK_AND_ASSIGN(const StoredObject object, store_->Get("mesh/a"));
  EXPECT_EQ(object.value, "x");
  EXPECT_EQ(object.revision, revision);
  EXPECT_THAT(store_->RevisionOf("mesh/a"), IsOkAndHolds(revision));
  EXPECT_THAT(store_->RevisionOf("mesh/b"), IsOkAndHolds(0));
}

TEST_P(StoreConformance, RevisionsGrowWithEveryCommit) {
  int64_t last = 0;
  for (int i = 0; i < 10; ++i) {
    ASSERT_OK_AND_ASSIGN(const int64_t revision, store_->Commit(Put("k", absl::StrCat(i))));
    EXPECT_GT(revision, last);
    last = revision;
  }
}

TEST_P(StoreConformance, AMissingObjectIsNotFoundAndNamed) {
  EXPECT_THAT(store_->Get("mesh/a"),
              StatusIs(absl::StatusCode::kNotFound, testing::HasSubstr("mesh/a")));
}

TEST_P(StoreConformance, ADeletedObjectIsGone) {
  ASSERT_OK(store_->Commit(Put("k", "v")).status());
  ASSERT_OK(store_->Commit({.writes = {{"k", std::nullopt}}}).status());
  EXPECT_THAT(store_->Get("k"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_P(StoreConformance, ARequirementThatDoesNotHoldAbortsTheWholeTransaction) {
  ASSERT_OK_AND_ASSIGN(const int64_t revision, store_->Commit(Put("a", "1")));
  const StoreTransaction stale{.requirements = {{"a", revision + 1}},
                               .writes = {{"a", "2"}, {"b", "2"}}};
  EXPECT_THAT(store_->Commit(stale),
              StatusIs(absl::StatusCode::kAborted, testing::HasSubstr("object a")));
  EXPECT_EQ(store_->Get("a")->value, "1");
  EXPECT_THAT(store_->Get("b"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_P(StoreConformance, ARequirementOfRevisionZeroMeansThatTheObjectMustNotExist) {
  const StoreTransaction create{.requirements = {{"a", 0}}, .writes = {{"a", "1"}}};
  EXPECT_OK(store_->Commit(create).status());
  EXPECT_THAT(store_->Commit(create), StatusIs(absl::StatusCode::kAborted));
}

TEST_P(StoreConformance, AnEpochLowerThanOneSeenIsFenced) {
  EXPECT_OK(store_->Commit({.epoch = 5, .writes = {{"a", "1"}}}).status());
  EXPECT_THAT(store_->Commit({.epoch = 4, .writes = {{"a", "2"}}}),
              StatusIs(absl::StatusCode::kAborted, testing::HasSubstr("epoch 4")));
  EXPECT_EQ(store_->Get("a")->value, "1");
  EXPECT_OK(store_->Commit({.epoch = 5, .writes = {{"a", "3"}}}).status());
}

TEST_P(StoreConformance, ListsByPrefixInOrderAndPageByPage) {
  for (const char* key : {"mesh/b", "mesh/a", "mesh/c", "meshes", "manifest/a"}) {
    ASSERT_OK(store_->Commit(Put(key, "v")).status());
  }
  ASSERT_OK_AND_ASSIGN(const std::vector<StoredObject> first, store_->List("mesh/", "", 2));
  EXPECT_THAT(Keys(first), testing::ElementsAre("mesh/a", "mesh/b"));
  ASSERT_OK_AND_ASSIGN(const std::vector<StoredObject> next, store_->List("mesh/", "mesh/b", 2));
  EXPECT_THAT(Keys(next), testing::ElementsAre("mesh/c"));
  ASSERT_OK_AND_ASSIGN(const std::vector<StoredObject> none, store_->List("mesh/", "mesh/c", 2));
  EXPECT_TRUE(none.empty());
}

TEST_P(StoreConformance, NoUpdateIsLostBetweenThreadsThatCompareAndSet) {
  constexpr int kThreads = 4;
  constexpr int kIncrements = 100;
  ASSERT_OK(store_->Commit(Put("counter", "0")).status());
  const auto increment = [this] {
    for (int done = 0; done < kIncrements;) {
      const StoredObject object = *store_->Get("counter");
      const StoreTransaction next{
          .requirements = {{"counter", object.revision}},
          .writes = {{"counter", absl::StrCat(std::stoi(object.value) + 1)}}};
      if (store_->Commit(next).ok()) ++done;
    }
  };
  std::vector<Thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back("increment", increment);
  for (Thread& thread : threads) thread.Join();
  EXPECT_EQ(store_->Get("counter")->value, absl::StrCat(kThreads * kIncrements));
}

TEST_P(StoreConformance, CommitsOfOneThreadTakeEffectInTheirOrder) {
  constexpr int kCommits = 100;
  Mutex mutex;
  CondVar is_done;
  std::vector<absl::StatusOr<int64_t>> revisions;
  for (int i = 0; i < kCommits; ++i) {
    store_->CommitThen(Put("k", absl::StrCat(i)), [&](absl::StatusOr<int64_t> revision) {
      const MutexLock lock(mutex);
      revisions.push_back(std::move(revision));
      is_done.SignalAll();
    });
  }
  const MutexLock lock(mutex);
  while (revisions.size() < kCommits) is_done.Wait(mutex);
  for (int i = 0; i < kCommits; ++i) {
    ASSERT_OK(revisions[i].status());
    if (i > 0) EXPECT_GT(*revisions[i], *revisions[i - 1]);
  }
  EXPECT_EQ(store_->Get("k")->value, absl::StrCat(kCommits - 1));
  EXPECT_EQ(store_->revision(), *revisions.back());
}

TEST_P(StoreConformance, WhatClientsFindAtTheSameTimeIsLinearisable) {
  const uint64_t first_seed = FromEnvironment("CROSSMESH_TEST_SEED", 1);
  for (int64_t i = 0; i < RandomCases(4); ++i) {
    const uint64_t seed = first_seed + static_cast<uint64_t>(i);
    const std::unique_ptr<MetadataStore> store = GetParam()(kCommitsKept);
    const StoreHistory history = RunStoreClients(*store, {.seed = seed});
    EXPECT_TRUE(IsLinearisable(history)) << "CROSSMESH_TEST_SEED=" << seed << ":\n"
                                         << absl::StrJoin(history, "\n", absl::StreamFormatter());
  }
}

TEST_P(StoreConformance, ValuesAndKeysAreAnyBytes) {
  const std::string large(32 << 20, 'x');
  const std::string odd("\0\xff/%_'\n", 7);
  ASSERT_OK(store_->Commit({.writes = {{"large", large}, {odd, ""}, {"empty", ""}}}).status());
  EXPECT_TRUE(store_->Get("large")->value == large);
  EXPECT_EQ(store_->Get(odd)->value, "");
  EXPECT_EQ(store_->Get("empty")->value, "");
  ASSERT_OK_AND_ASSIGN(const std::vector<StoredObject> found,
                       store_->List(odd.substr(0, 2), "", 10));
  EXPECT_THAT(Keys(found), testing::ElementsAre(odd));
  ASSERT_OK_AND_ASSIGN(const std::vector<StoredCommit> commits,
                       store_->CommitsAfter(0, 1, absl::ZeroDuration()));
  EXPECT_TRUE(commits.at(0).writes.at(0).value == large);
  EXPECT_EQ(commits.at(0).writes.at(1), (StoreTransaction::Write{odd, ""}));
}

TEST_P(StoreConformance, ATransactionMayRequireAndWriteAThousandObjects) {
  constexpr int kObjects = 1000;
  StoreTransaction transaction;
  for (int i = 0; i < kObjects; ++i) {
    transaction.requirements.push_back({absl::StrCat("object/", i), 0});
    transaction.writes.push_back({absl::StrCat("object/", i), absl::StrCat(i)});
  }
  ASSERT_OK_AND_ASSIGN(const int64_t revision, store_->Commit(transaction));
  EXPECT_THAT(store_->RevisionOf("object/999"), IsOkAndHolds(revision));
  for (int i = 0; i < kObjects; ++i) transaction.requirements[i].revision = revision;
  transaction.requirements.back().revision = 0;
  EXPECT_THAT(store_->Commit(transaction),
              StatusIs(absl::StatusCode::kAborted, testing::HasSubstr("object/999")));
  EXPECT_THAT(store_->RevisionOf("object/0"), IsOkAndHolds(revision));
  transaction.requirements.back().revision = revision;
  ASSERT_OK(store_->Commit(transaction).status());
  ASSERT_OK_AND_ASSIGN(const std::vector<StoredObject> all, store_->List("object/", "", 5000));
  EXPECT_EQ(std::ssize(all), kObjects);
}

TEST_P(StoreConformance, ATransactionThatWritesNothingIsACommitAndFences) {
  ASSERT_OK_AND_ASSIGN(const int64_t revision, store_->Commit({.epoch = 3}));
  EXPECT_EQ(store_->revision(), revision);
  EXPECT_THAT(store_->Commit({.epoch = 2}), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(RevisionsAfter(revision - 1), testing::ElementsAre(revision));
}

}  // namespace crossmesh
