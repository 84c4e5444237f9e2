#include "worker/gpu/communicators/communicator_life.h"

#include "common/testing/status_matchers.h"
#include "worker/gpu/communicators/testing/stand_in_rank.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CommunicatorLifeTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(rank_, StandInRank::Create());
    ASSERT_OK_AND_ASSIGN(free_bytes_, rank_->gpu().FreeBytes());
  }
  // However a test ended its communicator, its memory is back and the next one works.
  void TearDown() override {
    EXPECT_OK(rank_->stand_in().SetFaults(""));
    EXPECT_THAT(rank_->gpu().FreeBytes(), IsOkAndHolds(free_bytes_));
    EXPECT_OK(rank_->JoinAlone());
    EXPECT_OK(rank_->BeginExchange(0));
    EXPECT_OK(rank_->Await());
    EXPECT_OK(rank_->Destroy());
    EXPECT_OK(rank_->Close());
  }

  CommunicatorLife& life() { return rank_->life(); }
  void SetFaults(const std::string& faults) { ASSERT_OK(rank_->stand_in().SetFaults(faults)); }
  // The deadline that the state was given `timeout` ago has passed.
  void Advance(absl::Duration timeout) { rank_->clock().Advance(timeout + absl::Seconds(1)); }
  int64_t CallsOf(absl::string_view name) const {
    const std::vector<StandInCall> calls = rank_->stand_in().Calls();
    return std::ranges::count_if(calls, [&](const StandInCall& call) { return call.name == name; });
  }

  std::unique_ptr<StandInRank> rank_;
  int64_t free_bytes_ = 0;
};

TEST_F(CommunicatorLifeTest, ItIsMadeAndUsedAndDestroyed) {
  SetFaults("in_progress_polls=2");
  ASSERT_OK(rank_->BeginAlone());
  EXPECT_EQ(life().state(), CommunicatorState::kCreating);
  EXPECT_EQ(life().communicator(), nullptr);
  EXPECT_EQ(life().Poll(), CommunicatorState::kCreating);
  ASSERT_OK(rank_->AwaitState(CommunicatorState::kReady));
  EXPECT_EQ(CallsOf("ncclCommRegister"), 1);

  ASSERT_OK(rank_->BeginExchange(0));
  EXPECT_EQ(life().Poll(), CommunicatorState::kExchanging);
  EXPECT_THAT(life().Finalize(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is EXCHANGING")));
  ASSERT_OK(rank_->AwaitState(CommunicatorState::kReady));
  ASSERT_OK(rank_->Synchronize());

  ASSERT_OK(life().Finalize());
  EXPECT_EQ(life().communicator(), nullptr);
  EXPECT_EQ(life().Poll(), CommunicatorState::kFinalizing);
  EXPECT_OK(rank_->AwaitState(CommunicatorState::kDestroyed));
  EXPECT_OK(life().cause());
  EXPECT_EQ(CallsOf("ncclCommDestroy"), 1);
}

TEST_F(CommunicatorLifeTest, AnInitThatNeverEndsIsAbortedAtItsDeadline) {
  SetFaults("init_never_ends=1");
  ASSERT_OK(rank_->BeginAlone());
  rank_->clock().Advance(rank_->timeouts().creating);
  EXPECT_EQ(life().Poll(), CommunicatorState::kCreating);
  rank_->clock().Advance(absl::Nanoseconds(1));
  EXPECT_EQ(life().Poll(), CommunicatorState::kAborting);
  EXPECT_OK(rank_->AwaitState(CommunicatorState::kAborted));
  EXPECT_THAT(life().cause(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                       "communicator test is still CREATING at its deadline"));
}

TEST_F(CommunicatorLifeTest, AnInitThatFailsIsAborted) {
  SetFaults("init_fails=1");
  ASSERT_OK(rank_->BeginAlone());
  EXPECT_OK(rank_->AwaitState(CommunicatorState::kAborted));
  EXPECT_THAT(life().cause(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("ncclCommInitRankConfig"), HasSubstr("init_fails"))));
}

TEST_F(CommunicatorLifeTest, AnErrorThatComesLaterEndsIt) {
  ASSERT_OK(rank_->JoinAlone());
  SetFaults("async_error_at=1");
  ASSERT_OK(rank_->BeginExchange(0));
  EXPECT_OK(rank_->AwaitState(CommunicatorState::kAborted));
  EXPECT_THAT(life().cause(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("async_error_at")));
  EXPECT_OK(rank_->Synchronize());
}

// NCCL does not find a stall; the watcher of the stream does, and stops the communicator.
TEST_F(CommunicatorLifeTest, AStallIsEndedByARevoke) {
  ASSERT_OK(rank_->JoinAlone());
  SetFaults("stall_at=1");
  ASSERT_OK(rank_->BeginExchange(0));
  ASSERT_OK(rank_->AwaitState(CommunicatorState::kReady));
  for (int poll = 0; poll < 100; ++poll) ASSERT_EQ(life().Poll(), CommunicatorState::kReady);
  EXPECT_EQ(rank_->driver().cuStreamQuery(rank_->stream()), CUDA_ERROR_NOT_READY);
  life().Stop(absl::DeadlineExceededError("step 3 stalls"));
  EXPECT_EQ(life().state(), CommunicatorState::kRevoking);
  EXPECT_OK(rank_->AwaitState(CommunicatorState::kDestroyed));
  EXPECT_THAT(life().cause(), StatusIs(absl::StatusCode::kDeadlineExceeded, "step 3 stalls"));
  EXPECT_OK(rank_->Synchronize());
  EXPECT_EQ(CallsOf("ncclCommAbort"), 0);
}

TEST_F(CommunicatorLifeTest, ARevokeThatIsLateIsFollowedByAnAbort) {
  ASSERT_OK(rank_->JoinAlone());
  SetFaults("stall_at=1,in_progress_polls=1000000");
  life().Stop(absl::CancelledError("enough"));
  EXPECT_EQ(life().Poll(), CommunicatorState::kRevoking);
  Advance(rank_->timeouts().revoking);
  EXPECT_EQ(life().Poll(), CommunicatorState::kAborting);
  EXPECT_OK(rank_->AwaitState(CommunicatorState::kAborted));
  EXPECT_THAT(life().cause(), StatusIs(absl::StatusCode::kCancelled));
}

TEST_F(CommunicatorLifeTest, ACallThatNeverGetsOnTheStreamIsAborted) {
  ASSERT_OK(rank_->JoinAlone());
  SetFaults("in_progress_polls=1000000");
  ASSERT_OK(rank_->BeginExchange(0));
  EXPECT_EQ(life().Poll(), CommunicatorState::kExchanging);
  Advance(rank_->timeouts().exchanging);
  EXPECT_EQ(life().Poll(), CommunicatorState::kAborting);
  EXPECT_OK(rank_->AwaitState(CommunicatorState::kAborted));
  EXPECT_THAT(life().cause(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("still EXCHANGING")));
}

TEST_F(CommunicatorLifeTest, StoppedInACallItIsAborted) {
  ASSERT_OK(rank_->JoinAlone());
  SetFaults("in_progress_polls=1000000");
  ASSERT_OK(rank_->BeginExchange(0));
  life().Stop(absl::CancelledError("enough"));
  EXPECT_EQ(life().state(), CommunicatorState::kAborting);
  EXPECT_OK(rank_->AwaitState(CommunicatorState::kAborted));
}

TEST_F(CommunicatorLifeTest, AFinalizeThatIsLateIsFollowedByAnAbort) {
  ASSERT_OK(rank_->JoinAlone());
  SetFaults("in_progress_polls=1000000");
  ASSERT_OK(life().Finalize());
  Advance(rank_->timeouts().finalizing);
  EXPECT_EQ(life().Poll(), CommunicatorState::kAborting);
  EXPECT_OK(rank_->AwaitState(CommunicatorState::kAborted));
  EXPECT_THAT(life().cause(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("still FINALIZING")));
}

TEST_F(CommunicatorLifeTest, HoweverOftenItIsStoppedItEndsOnce) {
  SetFaults("init_never_ends=1");
  ASSERT_OK(rank_->BeginAlone());
  for (int i = 0; i < 3; ++i) life().Stop(absl::CancelledError(absl::StrCat("stop ", i)));
  ASSERT_OK(rank_->AwaitState(CommunicatorState::kAborted));
  life().Stop(absl::CancelledError("once more"));
  EXPECT_EQ(life().Poll(), CommunicatorState::kAborted);
  EXPECT_EQ(CallsOf("ncclCommAbort"), 1);
  EXPECT_THAT(life().cause(), StatusIs(absl::StatusCode::kCancelled, "stop 0"));
  EXPECT_THAT(life().Finalize(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(CommunicatorLifeTest, OneThatIsLetGoOfIsAborted) {
  ASSERT_OK(rank_->JoinAlone());
  ASSERT_OK(rank_->JoinAlone());  // in place of the first
  EXPECT_EQ(CallsOf("ncclCommAbort"), 1);
  EXPECT_OK(rank_->Destroy());
}

}  // namespace
}  // namespace crossmesh
