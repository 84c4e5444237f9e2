#include "controller/store/etcd/records/etcd_mirror.h"

#include "common/base/thread.h"
#include "common/testing/status_matchers.h"
#include "controller/store/etcd/records/etcd_commit.h"
#include "controller/store/etcd/records/testing/etcd_feed.h"
#include "controller/store/etcd/records/testing/etcd_model.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class EtcdMirrorTest : public testing::Test {
 protected:
  EtcdMirrorTest() {
    model_.Put(keys_.epoch(), EpochText(0));
    model_.Put(keys_.leader(), "a");
    fence_ = model_.revision();
    Follow(model_, mirror_);
  }

  EtcdCommit::Context Context(std::string chunk_id = "c") const {
    return {.keys = keys_, .mirror = mirror_, .fence = fence_, .chunk_id = std::move(chunk_id)};
  }
  // Does a commit, of which the mirror does not hear.
  void Do(const StoreTransaction& transaction, std::string chunk_id = "c") {
    const absl::StatusOr<EtcdCommit> commit =
        EtcdCommit::Create(transaction, Context(std::move(chunk_id)));
    ASSERT_OK(commit.status());
    for (const etcdserverpb::TxnRequest& chunk : commit->chunks()) {
      ASSERT_TRUE(model_.Txn(chunk).succeeded());
    }
    ASSERT_TRUE(model_.Txn(commit->last()).succeeded());
  }

  const EtcdKeys keys_{"test"};
  EtcdModel model_;
  EtcdMirror mirror_{keys_, 100};
  int64_t fence_ = 0;
};

TEST_F(EtcdMirrorTest, ACommitShowsWhenItsLastEventHasCome) {
  Do({.writes = {{"a", "1"}, {"b", "2"}}});
  FollowInParts(model_, mirror_, /*part=*/1, /*parts=*/2);
  EXPECT_EQ(mirror_.table().RevisionOf("a"), 0);
  EXPECT_LT(mirror_.revision(), model_.revision());
  Follow(model_, mirror_);
  EXPECT_EQ(mirror_.table().RevisionOf("a"), model_.revision());
  EXPECT_EQ(mirror_.table().RevisionOf("b"), model_.revision());
  EXPECT_EQ(mirror_.revision(), model_.revision());
}

TEST_F(EtcdMirrorTest, AStreamThatBreaksWithinACommitIsResumedWithAllOfIt) {
  Do({.writes = {{"a", "1"}, {"b", "2"}}});
  const int64_t start = mirror_.ResumeAt();
  FollowInParts(model_, mirror_, /*part=*/1, /*parts=*/2);
  EXPECT_EQ(mirror_.ResumeAt(), start);
  FollowInParts(model_, mirror_, /*part=*/1, /*parts=*/9);
  EXPECT_EQ(mirror_.table().Get("b")->value, "2");
  EXPECT_EQ(mirror_.ResumeAt(), model_.revision() + 1);
}

TEST_F(EtcdMirrorTest, ALargeObjectIsReadWholeFromEventsAndWhenLoaded) {
  const std::string large(2 * EtcdCommit::kChunkBytes + 7, 'x');
  Do({.writes = {{"small", "1"}, {"large", large}}});
  FollowInParts(model_, mirror_, /*part=*/1, /*parts=*/3);  // its chunks
  EXPECT_EQ(mirror_.table().RevisionOf("large"), 0);
  EXPECT_THAT(mirror_.LooseChunks(), ElementsAre("c-0"));
  Follow(model_, mirror_);
  EXPECT_EQ(mirror_.table().Get("large")->value, large);
  EXPECT_THAT(mirror_.LooseChunks(), IsEmpty());
  EtcdMirror loaded(keys_, 100);
  ASSERT_OK(loaded.Load(model_.Pairs(), model_.revision()));
  EXPECT_EQ(loaded.table().Get("large")->value, large);
  EXPECT_EQ(loaded.table().RevisionOf("large"), mirror_.table().RevisionOf("large"));
  EXPECT_EQ(loaded.ChunksOf("large"), "c-0");
}

TEST_F(EtcdMirrorTest, ChunksThatWereThereBeforeItWasLoadedServeACommitThatComesLater) {
  const std::string large(EtcdCommit::kChunkBytes + 1, 'x');
  const absl::StatusOr<EtcdCommit> commit =
      EtcdCommit::Create({.writes = {{"large", large}}}, Context());
  ASSERT_OK(commit.status());
  for (const etcdserverpb::TxnRequest& chunk : commit->chunks()) model_.Txn(chunk);
  ASSERT_OK(mirror_.Load(model_.Pairs(), model_.revision()));
  ASSERT_TRUE(model_.Txn(commit->last()).succeeded());
  Follow(model_, mirror_);
  EXPECT_EQ(mirror_.table().Get("large")->value, large);
}

TEST_F(EtcdMirrorTest, ChunksOfWhatIsReplacedOrDeletedGoWithTheCommitThatDoesIt) {
  const std::string large(EtcdCommit::kChunkBytes + 1, 'x');
  Do({.writes = {{"a", large}, {"b", large}}}, "first");
  Follow(model_, mirror_);
  Do({.writes = {{"a", large}, {"b", std::nullopt}}}, "second");
  Follow(model_, mirror_);
  size_t chunks = 0;
  for (const etcdserverpb::KeyValue& pair : model_.Pairs()) {
    if (!absl::StartsWith(pair.key(), keys_.chunks())) continue;
    EXPECT_TRUE(absl::StartsWith(pair.key(), keys_.ChunksOf("second-0"))) << pair.key();
    ++chunks;
  }
  EXPECT_EQ(chunks, 2);
  EXPECT_EQ(mirror_.ChunksOf("b"), std::nullopt);
}

TEST_F(EtcdMirrorTest, WhatSomebodyElseWroteIsFoundAndNamed) {
  model_.Put(keys_.Object("a"), v1::EtcdObjectRecord().SerializeAsString());
  Do({.writes = {{"b", "2"}}});
  etcdserverpb::WatchResponse response;
  for (const etcdserverpb::Event& event : model_.EventsFrom(mirror_.ResumeAt())) {
    *response.add_events() = event;
  }
  EXPECT_THAT(mirror_.Apply(response),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/crossmesh/test/object/a")));
}

TEST_F(EtcdMirrorTest, WhatIsDamagedIsFoundWhenItIsLoadedAndNothingChanges) {
  const std::string large(EtcdCommit::kChunkBytes + 1, 'x');
  Do({.writes = {{"a", "1"}, {"large", large}}});
  Follow(model_, mirror_);
  const std::string chunk = keys_.Chunk("c-0", 1);
  const auto with = [this](const std::string& key, const std::string& value) {
    EtcdModel damaged = model_;
    damaged.Put(key, value);
    return mirror_.Load(damaged.Pairs(), damaged.revision());
  };
  EXPECT_THAT(with(chunk, "y"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("object/large")));
  EXPECT_THAT(with(keys_.Object("a"), "\xff"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("object/a")));
  EXPECT_THAT(with(keys_.Object("a"), ""),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("object/a")));
  EXPECT_THAT(with(keys_.epoch(), "7"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("epoch")));
  EXPECT_EQ(mirror_.table().Get("a")->value, "1");
  EXPECT_EQ(mirror_.table().Get("large")->value, large);
}

TEST_F(EtcdMirrorTest, ThreadsReadAndWaitWhileAnotherOneFollows) {
  constexpr int kCommits = 50;
  Thread follower("follower", [this] {
    for (int i = 0; i < kCommits; ++i) {
      Do({.writes = {{"k", absl::StrCat(i)}}});
      Follow(model_, mirror_);
    }
  });
  int64_t at = 0;
  for (int heard = 0; heard < kCommits; ++heard) {
    const absl::StatusOr<std::vector<StoredCommit>> commits =
        mirror_.table().CommitsAfter(at, 1, absl::Minutes(1));
    ASSERT_OK(commits.status());
    at = commits->at(0).revision;
    EXPECT_TRUE(mirror_.AwaitRevision(at, absl::Minutes(1)));
    EXPECT_GE(mirror_.table().RevisionOf("k"), at);
    EXPECT_EQ(mirror_.ChunksOf("k"), std::nullopt);
  }
  follower.Join();
  EXPECT_EQ(mirror_.table().revision(), at);
}

TEST_F(EtcdMirrorTest, ARevisionNoEtcdHasIsRefused) {
  for (const int64_t revision : {int64_t{0}, std::numeric_limits<int64_t>::max()}) {
    etcdserverpb::WatchResponse response;
    response.add_events()->mutable_kv()->set_mod_revision(revision);
    EXPECT_THAT(mirror_.Apply(response), StatusIs(absl::StatusCode::kDataLoss));
    EXPECT_THAT(mirror_.Load({}, revision), StatusIs(absl::StatusCode::kDataLoss));
  }
}

TEST_F(EtcdMirrorTest, ARevisionIsAwaitedUntilAllOfItIsKnown) {
  Do({.writes = {{"a", "1"}}});
  EXPECT_FALSE(mirror_.AwaitRevision(model_.revision(), absl::ZeroDuration()));
  Follow(model_, mirror_);
  EXPECT_TRUE(mirror_.AwaitRevision(model_.revision(), absl::ZeroDuration()));
}

}  // namespace
}  // namespace crossmesh
