#include "controller/store/etcd/records/etcd_commit.h"

#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "controller/store/etcd/records/testing/etcd_feed.h"
#include "controller/store/etcd/records/testing/etcd_model.h"

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

class EtcdCommitTest : public testing::Test {
 protected:
  EtcdCommitTest() {
    model_.Put(keys_.epoch(), EpochText(5));
    model_.Put(keys_.leader(), "a");
    fence_ = model_.revision();
    Follow(model_, mirror_);
  }

  EtcdCommit::Context Context() {
    return {.keys = keys_,
            .mirror = mirror_,
            .fence = fence_,
            .chunk_id = absl::StrCat("c", next_chunk_id_++)};
  }
  // Why the commit was not done.
  EtcdRefusal Refusal(const StoreTransaction& transaction) {
    const EtcdCommit::Context context = Context();
    const absl::StatusOr<EtcdCommit> commit = EtcdCommit::Create(transaction, context);
    EXPECT_OK(commit.status());
    const etcdserverpb::TxnResponse response = model_.Txn(commit->last());
    EXPECT_FALSE(response.succeeded());
    return WhyRefused(transaction, context, response);
  }

  const EtcdKeys keys_{"test"};
  EtcdModel model_;
  EtcdMirror mirror_{keys_, 1000};
  int64_t fence_ = 0;
  int next_chunk_id_ = 0;
};

TEST_F(EtcdCommitTest, IsNotDoneForALeaderWhoseKeyIsGone) {
  ++fence_;
  EXPECT_THAT(Refusal({.epoch = 5, .writes = {{"a", "1"}}}).status,
              StatusIs(absl::StatusCode::kAborted, HasSubstr("epoch 5 is fenced")));
}

TEST_F(EtcdCommitTest, IsNotDoneForAnEpochBelowOneThatWasStored) {
  EXPECT_THAT(Refusal({.epoch = 4, .writes = {{"a", "1"}}}).status,
              StatusIs(absl::StatusCode::kAborted,
                       HasSubstr("epoch 4 is fenced: the store has seen epoch 5")));
}

TEST_F(EtcdCommitTest, IsNotDoneWhenARequirementDoesNotHold) {
  EXPECT_THAT(
      Refusal({.epoch = 5, .requirements = {{"a", 0}, {"b", 3}}, .writes = {{"a", "1"}}}).status,
      StatusIs(absl::StatusCode::kAborted, HasSubstr("object b: expected revision 3, found 0")));
}

TEST_F(EtcdCommitTest, IsNotDoneTwiceNorAfterAnother) {
  const StoreTransaction transaction{.epoch = 5, .writes = {{"a", "1"}}};
  const absl::StatusOr<EtcdCommit> late = EtcdCommit::Create(transaction, Context());
  const absl::StatusOr<EtcdCommit> commit =
      EtcdCommit::Create({.epoch = 5, .writes = {{"a", "2"}}}, Context());
  ASSERT_TRUE(model_.Txn(commit->last()).succeeded());
  EXPECT_FALSE(model_.Txn(commit->last()).succeeded());
  EXPECT_FALSE(model_.Txn(late->last()).succeeded());
  const EtcdRefusal refusal = Refusal(transaction);
  EXPECT_OK(refusal.status);
  EXPECT_EQ(refusal.newest_commit, model_.revision());
}

TEST_F(EtcdCommitTest, AHigherEpochIsStoredWithIt) {
  ASSERT_TRUE(
      model_.Txn(EtcdCommit::Create({.epoch = 9, .writes = {}}, Context())->last()).succeeded());
  Follow(model_, mirror_);
  EXPECT_EQ(mirror_.epoch(), 9);
  EXPECT_THAT(Refusal({.epoch = 8, .writes = {}}).status, StatusIs(absl::StatusCode::kAborted));
}

TEST_F(EtcdCommitTest, CountsTheOperationsThatEtcdCounts) {
  StoreTransaction transaction{.epoch = 5};
  for (int i = 0; i < 127; ++i) transaction.writes.push_back({absl::StrCat(i), "1"});
  EXPECT_EQ(EtcdCommit::Create(transaction, Context())->operations(), 128);
  for (int i = 0; i < 200; ++i) transaction.requirements.push_back({absl::StrCat(i), 0});
  EXPECT_EQ(EtcdCommit::Create(transaction, Context())->operations(), 203);
}

TEST_F(EtcdCommitTest, MoreBytesThanEtcdTakesAtOnceAreRefused) {
  const std::string long_key(EtcdCommit::kRequestBytesMax, 'k');
  EXPECT_THAT(EtcdCommit::Create({.epoch = 5, .writes = {{long_key, "1"}}}, Context()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("bytes of keys")));
}

TEST_F(EtcdCommitTest, ChunksThatAreLooseAreDeletedOnlyBehindTheFence) {
  const std::string large(EtcdCommit::kChunkBytes + 1, 'x');
  const absl::StatusOr<EtcdCommit> unfinished =
      EtcdCommit::Create({.epoch = 5, .writes = {{"large", large}}}, Context());
  for (const etcdserverpb::TxnRequest& chunk : unfinished->chunks()) model_.Txn(chunk);
  Follow(model_, mirror_);
  const std::vector<std::string> loose = mirror_.LooseChunks();
  ASSERT_EQ(loose.size(), 1);
  EXPECT_FALSE(model_.Txn(DeletionOfChunks(loose, Context(), /*epoch=*/4)).succeeded());
  EXPECT_TRUE(model_.Txn(DeletionOfChunks(loose, Context(), /*epoch=*/5)).succeeded());
  Follow(model_, mirror_);
  EXPECT_THAT(mirror_.LooseChunks(), testing::IsEmpty());
}

// Random commits, of which some are sent late or twice, and a mirror that hears of them in parts,
// over streams that break, or loads everything: it always shows what a map shows to which the same
// commits were done, none in part.
class EtcdHistory {
 public:
  explicit EtcdHistory(uint64_t seed) : random_(seed) {
    model_.Put(keys_.epoch(), EpochText(1));
    model_.Put(keys_.leader(), "a");
    fence_ = model_.revision();
    Follow(model_, mirror_);
    states_[0] = {};
  }

  void Step() {
    switch (Below(8)) {
      case 0:
        FollowInParts(model_, mirror_, 1 + Below(3), Below(9));
        break;
      case 1:
        if (Below(4) == 0) ASSERT_OK(mirror_.Load(model_.Pairs(), model_.revision()));
        break;
      case 2:
        SendLate();
        break;
      default:
        Commit();
    }
    Check();
  }

 private:
  using State = std::map<std::string, std::string>;

  int64_t Below(int64_t limit) {
    return std::uniform_int_distribution<int64_t>(0, limit - 1)(random_);
  }
  std::string Key() { return absl::StrCat("k", Below(6)); }

  StoreTransaction RandomTransaction() {
    StoreTransaction transaction{.epoch = 1};
    std::map<std::string, std::optional<std::string>> writes;
    for (int64_t i = Below(4); i > 0; --i) {
      const int64_t size = Below(40) == 0 ? EtcdCommit::kChunkBytes + Below(9) : Below(20);
      writes[Key()] = Below(4) == 0
                          ? std::nullopt
                          : std::optional(std::string(size, static_cast<char>('a' + Below(26))));
    }
    for (const auto& [key, value] : writes) transaction.writes.push_back({key, value});
    if (Below(2) == 0) {
      const std::string key = Key();
      transaction.requirements.push_back(
          {key, Below(4) == 0 ? Below(50) : mirror_.table().RevisionOf(key)});
    }
    return transaction;
  }

  void Commit() {
    if (Below(2) == 0) Follow(model_, mirror_);
    const StoreTransaction transaction = RandomTransaction();
    const EtcdCommit::Context context{.keys = keys_,
                                      .mirror = mirror_,
                                      .fence = fence_,
                                      .chunk_id = absl::StrCat("c", next_chunk_id_++)};
    const absl::StatusOr<EtcdCommit> commit = EtcdCommit::Create(transaction, context);
    ASSERT_OK(commit.status());
    for (const etcdserverpb::TxnRequest& chunk : commit->chunks()) {
      ASSERT_TRUE(model_.Txn(chunk).succeeded());
    }
    late_.push_back(commit->last());
    if (Below(6) == 0) return;  // it is sent later, if at all
    const etcdserverpb::TxnResponse response = model_.Txn(commit->last());
    if (response.succeeded()) return Record(transaction);
    const EtcdRefusal refusal = WhyRefused(transaction, context, response);
    if (refusal.status.ok()) {
      EXPECT_GT(refusal.newest_commit, mirror_.table().revision());
    } else {
      EXPECT_THAT(refusal.status, StatusIs(absl::StatusCode::kAborted, HasSubstr("object ")));
    }
  }

  // One that has been sent before, or should have been: never after another commit.
  void SendLate() {
    if (late_.empty()) return;
    const etcdserverpb::TxnRequest request = late_[Below(std::ssize(late_))];
    const int64_t after = request.compare(2).mod_revision();
    const etcdserverpb::TxnResponse response = model_.Txn(request);
    if (!response.succeeded()) return;
    EXPECT_EQ(after, states_.rbegin()->first);
    State next;
    EtcdMirror now(keys_, 1);
    ASSERT_OK(now.Load(model_.Pairs(), model_.revision()));
    for (const StoredObject& object : now.table().List("", "", 1000)) {
      next[object.key] = object.value;
    }
    states_[model_.revision()] = next;
  }

  void Record(const StoreTransaction& transaction) {
    State next = states_.rbegin()->second;
    for (const StoreTransaction::Write& write : transaction.writes) {
      if (write.value.has_value()) {
        next[write.key] = *write.value;
      } else {
        next.erase(write.key);
      }
    }
    states_[model_.revision()] = next;
  }

  void Check() const {
    State shown;
    for (const StoredObject& object : mirror_.table().List("", "", 1000)) {
      shown[object.key] = object.value;
    }
    EXPECT_TRUE(shown == states_.at(mirror_.table().revision()));
  }

  const EtcdKeys keys_{"test"};
  std::mt19937_64 random_;
  EtcdModel model_;
  EtcdMirror mirror_{keys_, 1000};
  int64_t fence_ = 0;
  int next_chunk_id_ = 0;
  std::map<int64_t, State> states_;  // after each commit, by its revision
  std::vector<etcdserverpb::TxnRequest> late_;
};

TEST(EtcdHistory, AMirrorShowsWholeCommitsInTheirOrderWhateverComesLateOrBreaks) {
  for (int64_t i = 0; i < RandomCases(20); ++i) {
    const uint64_t seed = FromEnvironment("CROSSMESH_TEST_SEED", 1000 + i);
    SCOPED_TRACE(absl::StrCat("CROSSMESH_TEST_SEED=", seed));
    EtcdHistory history(seed);
    for (int step = 0; step < 100 && !testing::Test::HasFailure(); ++step) history.Step();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace crossmesh
