#include "worker/gpu/communicators/nccl_communicator.h"

#include "common/testing/status_matchers.h"
#include "worker/gpu/communicators/testing/stand_in_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NcclCommunicatorTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_OK_AND_ASSIGN(rank_, StandInRank::Create()); }
  void TearDown() override {
    EXPECT_OK(rank_->stand_in().SetFaults(""));
    EXPECT_OK(rank_->Close());
  }

  std::unique_ptr<StandInRank> rank_;
};

TEST_F(NcclCommunicatorTest, AnIdThatIsNoneIsRefused) {
  EXPECT_THAT(rank_->Begin(1, 0, "not an id"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("communicator test, rank 0 of 1"),
                             HasSubstr("an id of 9 bytes, expected 128"))));
}

TEST_F(NcclCommunicatorTest, ARankThatIsNoneIsRefused) {
  ASSERT_OK_AND_ASSIGN(const std::string id, MintId(rank_->nccl()));
  EXPECT_THAT(rank_->Begin(2, 2, id), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(NcclCommunicatorTest, WhatNcclRefusesAtOnceHasItsWords) {
  EXPECT_THAT(rank_->Begin(1, 0, std::string(128, 'x')),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("communicator test, rank 0 of 1"),
                             HasSubstr("ncclCommInitRankConfig"),
                             HasSubstr("the unique id is not one of ncclGetUniqueId"))));
  EXPECT_THAT(rank_->TakeViolations(), ElementsAre(HasSubstr("ncclCommInitRankConfig")));
}

TEST_F(NcclCommunicatorTest, NcclIsToldHowManyBlocksItMayHave) {
  ASSERT_OK_AND_ASSIGN(const std::string id, MintId(rank_->nccl()));
  const auto begin = [&](CtaLimits ctas) {
    return NcclCommunicator::Begin(rank_->nccl(), {.name = "test", .id = id, .ctas = ctas});
  };
  EXPECT_OK(begin({.min = 2, .max = 4}));
  EXPECT_OK(begin({.min = 4}));
  EXPECT_OK(begin({.max = 4}));
  EXPECT_THAT(begin({.min = 4, .max = 2}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("minCTAs 4, maxCTAs 2")));
  EXPECT_THAT(rank_->TakeViolations(), ElementsAre(HasSubstr("minCTAs")));
}

TEST_F(NcclCommunicatorTest, TheDefaultStreamIsRefused) {
  ASSERT_OK(rank_->JoinAlone());
  EXPECT_THAT(rank_->communicator().Exchange({}, {}, nullptr),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no stream")));
  EXPECT_OK(rank_->Destroy());
}

TEST_F(NcclCommunicatorTest, ACallTooEarlyNamesTheOneInProgress) {
  ASSERT_OK(rank_->JoinAlone());
  ASSERT_OK(rank_->BeginExchange(0));
  EXPECT_THAT(rank_->BeginExchange(0),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("Exchange while ncclGroupEnd is in progress")));
  ASSERT_OK(rank_->Await());
  EXPECT_OK(rank_->Destroy());
}

TEST_F(NcclCommunicatorTest, AnErrorThatComesLaterIsToldEverAfterWithNcclsWords) {
  ASSERT_OK(rank_->JoinAlone());
  Communicator& communicator = rank_->communicator();
  ASSERT_OK(rank_->stand_in().SetFaults("async_error_at=1"));
  ASSERT_OK(rank_->BeginExchange(0));
  absl::StatusOr<Communicator::Progress> progress = communicator.Poll();
  while (progress.ok() && *progress == Communicator::Progress::kInProgress) {
    progress = communicator.Poll();
  }
  ASSERT_THAT(progress, IsOkAndHolds(Communicator::Progress::kIdle));
  for (int poll = 0; poll < 2; ++poll) {
    EXPECT_THAT(communicator.Poll(),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr("communicator test, rank 0 of 1"),
                               HasSubstr("remote process exited or network error"),
                               HasSubstr("injected fault async_error_at"))));
  }
  EXPECT_THAT(rank_->BeginExchange(0), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(NcclCommunicatorTest, AfterItsEndEveryCallIsRefused) {
  ASSERT_OK_AND_ASSIGN(const std::string id, MintId(rank_->nccl()));
  ASSERT_OK_AND_ASSIGN(const auto communicator,
                       NcclCommunicator::Begin(rank_->nccl(), {.name = "test", .id = id}));
  EXPECT_OK(AbortAll(rank_->nccl(), communicator->Release()));
  const auto refused =
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("after it was ended"));
  EXPECT_THAT(communicator->Poll(), refused);
  EXPECT_THAT(communicator->Exchange({}, {}, rank_->stream()), refused);
  EXPECT_THAT(communicator->Register(rank_->staging().address(), 1000), refused);
  EXPECT_THAT(communicator->Finalize(), refused);
  EXPECT_EQ(communicator->Release().whole, nullptr);
}

TEST_F(NcclCommunicatorTest, StagingThatDoesNotFitIsToldOfItsSize) {
  EXPECT_THAT(
      RegisteredStaging::Allocate(rank_->nccl(), int64_t{1} << 40),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("staging of 1099511627776 bytes")));
}

}  // namespace
}  // namespace crossmesh
