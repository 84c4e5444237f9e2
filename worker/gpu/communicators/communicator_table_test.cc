#include "worker/gpu/communicators/communicator_table.h"

#include "common/testing/status_matchers.h"
#include "worker/gpu/communicators/testing/stand_in_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr int64_t kCommunicatorBytes = 16 << 20;  // of the stand-in

// A process that is the only rank of its communicators.
class CommunicatorTableTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(rank_, StandInRank::Create());
    table_ = std::make_unique<CommunicatorTable>(
        rank_->clock(), rank_->driver(), rank_->nccl(),
        CommunicatorTable::Options{
            .self = kSelf, .staging = &rank_->staging(), .timeouts = rank_->timeouts()});
    ASSERT_OK(table_->BeginEpoch(4));
  }
  void TearDown() override {
    table_.reset();
    EXPECT_OK(rank_->Close());
  }

  static CommunicatorKey Key(const std::string& purpose, uint64_t epoch = 4) {
    return {.ranks = {kSelf}, .purpose = purpose, .epoch = epoch};
  }
  absl::Status Create(const CommunicatorKey& key, uint64_t ticket) {
    ASSIGN_OR_RETURN(const std::string id, MintId(rank_->nccl()));
    return table_->Create(key, ticket, id);
  }
  // The next changes; at least one.
  std::vector<CommunicatorTable::Change> AwaitChanges() {
    while (true) {
      std::vector<CommunicatorTable::Change> changes = table_->Poll();
      if (!changes.empty()) return changes;
      std::this_thread::yield();
    }
  }
  // Polls until one is told to be in that state.
  CommunicatorTable::Change AwaitState(CommunicatorState state) {
    while (true) {
      for (const CommunicatorTable::Change& change : AwaitChanges()) {
        if (change.state == state) return change;
      }
    }
  }
  void MakeReady(const CommunicatorKey& key, uint64_t ticket) {
    ASSERT_OK(Create(key, ticket));
    EXPECT_EQ(AwaitState(CommunicatorState::kReady).key, key);
  }
  int64_t TotalBytes() const {
    int64_t total = 0;
    for (const auto& listing : table_->List()) total += listing.bytes;
    return total;
  }

  inline static const RankName kSelf = {"GPU-a", 7};
  std::unique_ptr<StandInRank> rank_;
  std::unique_ptr<CommunicatorTable> table_;
};

TEST_F(CommunicatorTableTest, ItKnowsWhatItsCommunicatorsTook) {
  EXPECT_EQ(table_->Find(Key("relay")), nullptr);
  ASSERT_OK(Create(Key("relay"), 1));
  EXPECT_EQ(table_->Find(Key("relay")), nullptr) << "it is not ready";
  const CommunicatorTable::Change ready = AwaitState(CommunicatorState::kReady);
  EXPECT_EQ(ready.key, Key("relay"));
  EXPECT_EQ(ready.bytes, kCommunicatorBytes);
  EXPECT_NE(table_->Find(Key("relay")), nullptr);
  MakeReady(Key("broadcast"), 2);
  EXPECT_EQ(TotalBytes(), 2 * kCommunicatorBytes);
  EXPECT_THAT(table_->List(), SizeIs(2));

  ASSERT_OK(table_->Destroy(Key("relay"), 3));
  const CommunicatorTable::Change destroyed = AwaitState(CommunicatorState::kDestroyed);
  EXPECT_EQ(destroyed.key, Key("relay"));
  EXPECT_OK(destroyed.cause);
  EXPECT_EQ(TotalBytes(), kCommunicatorBytes);
  EXPECT_THAT(table_->List(), SizeIs(1));
  EXPECT_THAT(table_->Poll(), IsEmpty());
}

TEST_F(CommunicatorTableTest, WhatANeighbourTakesMeanwhileIsNotItsOwn) {
  ASSERT_OK(rank_->stand_in().SetFaults("init_never_ends=1"));
  ASSERT_OK(Create(Key("relay"), 1));
  ASSERT_OK(rank_->Allocate(int64_t{64} << 20));
  ASSERT_OK(rank_->stand_in().SetFaults(""));
  EXPECT_EQ(AwaitState(CommunicatorState::kReady).bytes, kCommunicatorBytes);
}

TEST_F(CommunicatorTableTest, WhatTheyTakeIsToldByTicket) {
  EXPECT_THAT(table_->MemoryByTicket(), IsEmpty());
  MakeReady(Key("relay"), 3);
  MakeReady(Key("broadcast"), 5);
  EXPECT_THAT(table_->MemoryByTicket(),
              ElementsAre(Pair(3, kCommunicatorBytes), Pair(5, kCommunicatorBytes)));
  ASSERT_OK(table_->Destroy(Key("relay"), 6));
  EXPECT_THAT(table_->MemoryByTicket(), ElementsAre(Pair(5, kCommunicatorBytes)));
  AwaitState(CommunicatorState::kDestroyed);
}

TEST_F(CommunicatorTableTest, CallsOfItsUserAreNoChanges) {
  MakeReady(Key("relay"), 1);
  ASSERT_OK(rank_->stand_in().SetFaults("in_progress_polls=3"));
  ASSERT_OK(table_->Find(Key("relay"))->Exchange({}, {}, rank_->stream()));
  for (int poll = 0; poll < 10; ++poll) EXPECT_THAT(table_->Poll(), IsEmpty());
  ASSERT_OK(rank_->stand_in().SetFaults(""));
}

TEST_F(CommunicatorTableTest, ATicketThatWasTakenIsRefusedWithBothNumbers) {
  MakeReady(Key("relay"), 3);
  EXPECT_THAT(table_->Destroy(Key("relay"), 3),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("communicator relay@4[GPU-a#7]"),
                             HasSubstr("ticket 3, expected one after 3"))));
  EXPECT_THAT(Create(Key("broadcast"), 2), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                    HasSubstr("ticket 2, expected one after 3")));
}

TEST_F(CommunicatorTableTest, TicketsOfOrdersThatWereNotForItAreLeftOut) {
  MakeReady(Key("relay"), 3);
  EXPECT_OK(table_->Destroy(Key("relay"), 7));
}

TEST_F(CommunicatorTableTest, ATicketInItsTurnIsUsedUpWhateverComesOfIt) {
  EXPECT_THAT(table_->Destroy(Key("relay"), 1), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(table_->Create(Key("relay"), 2, "no id"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  MakeReady(Key("relay"), 3);
}

TEST_F(CommunicatorTableTest, NoTwoAreMadeAtATime) {
  ASSERT_OK(rank_->stand_in().SetFaults("init_never_ends=1"));
  ASSERT_OK(Create(Key("relay"), 1));
  EXPECT_THAT(Create(Key("broadcast"), 2),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("broadcast@4[GPU-a#7] is ordered while relay@4[GPU-a#7] is "
                                 "CREATING")));
  ASSERT_OK(rank_->stand_in().SetFaults(""));
  EXPECT_EQ(AwaitState(CommunicatorState::kReady).key, Key("relay"));
  MakeReady(Key("broadcast"), 3);
}

TEST_F(CommunicatorTableTest, AGroupHasThisProcessOnce) {
  EXPECT_THAT(Create({.ranks = {{"GPU-b", 1}}, .purpose = "relay", .epoch = 4}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has 0 ranks GPU-a#7")));
  EXPECT_THAT(Create({.ranks = {kSelf, kSelf}, .purpose = "relay", .epoch = 4}, 2),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has 2 ranks GPU-a#7")));
}

TEST_F(CommunicatorTableTest, OneThatIsHereIsNotMadeAgain) {
  MakeReady(Key("relay"), 1);
  EXPECT_THAT(Create(Key("relay"), 2), StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(CommunicatorTableTest, OrdersOfOtherEpochsAreRefused) {
  EXPECT_THAT(Create(Key("relay", 3), 1),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("epoch 3, expected epoch 4")));
  EXPECT_THAT(Create(Key("relay", 5), 1), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(table_->BeginEpoch(3), StatusIs(absl::StatusCode::kAborted));
  EXPECT_OK(table_->BeginEpoch(4));
}

TEST_F(CommunicatorTableTest, ANewEpochStopsWhatTheOldOneMade) {
  MakeReady(Key("relay"), 1);
  ASSERT_OK(table_->BeginEpoch(5));
  EXPECT_EQ(table_->Find(Key("relay")), nullptr);
  EXPECT_THAT(Create(Key("relay", 5), 1),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is REVOKING")));
  const CommunicatorTable::Change gone = AwaitState(CommunicatorState::kDestroyed);
  EXPECT_THAT(gone.cause, StatusIs(absl::StatusCode::kAborted, "epoch 5 has begun"));
  MakeReady(Key("relay", 5), 2);
  EXPECT_EQ(TotalBytes(), kCommunicatorBytes);
}

TEST_F(CommunicatorTableTest, AFailureIsToldWithItsCauseAndTheMemoryIsBack) {
  ASSERT_OK_AND_ASSIGN(const int64_t free_bytes, rank_->gpu().FreeBytes());
  MakeReady(Key("relay"), 1);
  ASSERT_OK(table_->Stop(Key("relay"), absl::UnavailableError("a peer is gone")));
  const CommunicatorTable::Change gone = AwaitState(CommunicatorState::kDestroyed);
  EXPECT_THAT(gone.cause, StatusIs(absl::StatusCode::kUnavailable, "a peer is gone"));
  EXPECT_EQ(TotalBytes(), 0);
  EXPECT_THAT(rank_->gpu().FreeBytes(), IsOkAndHolds(free_bytes));
  EXPECT_THAT(table_->Stop(Key("relay"), absl::OkStatus()), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(table_->Destroy(Key("relay"), 2), StatusIs(absl::StatusCode::kNotFound));
  MakeReady(Key("relay"), 3);
}

// The stand-in has 1 GiB, and tells so at once.
TEST_F(CommunicatorTableTest, OneThatDoesNotFitIsRefused) {
  ASSERT_OK(rank_->Allocate(1010 << 20));
  EXPECT_THAT(Create(Key("relay"), 1),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("out of memory")));
  EXPECT_THAT(table_->List(), IsEmpty());
}

}  // namespace
}  // namespace crossmesh
