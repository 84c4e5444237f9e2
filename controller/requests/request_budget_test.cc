#include "controller/requests/request_budget.h"

#include "common/rpc/push_back.h"
#include "common/testing/status_matchers.h"

#include <optional>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kMebibyte = 1 << 20;

TEST(RequestBudgetTest, WhatIsTakenIsGivenBackOnce) {
  RequestBudget budget(8 * kMebibyte);
  {
    ASSERT_OK_AND_ASSIGN(RequestBudget::Share share, budget.Take(kMebibyte));
    RequestBudget::Share moved = std::move(share);
    EXPECT_EQ(budget.taken(), kMebibyte);
    ASSERT_OK_AND_ASSIGN(moved, budget.Take(2 * kMebibyte));
    EXPECT_EQ(budget.taken(), 2 * kMebibyte);
  }
  EXPECT_EQ(budget.taken(), 0);
}

TEST(RequestBudgetTest, LargeRequestsLeaveRoomForSmallOnes) {
  RequestBudget budget(8 * kMebibyte);
  std::vector<RequestBudget::Share> large;
  for (int i = 0; i < 7; ++i) {
    ASSERT_OK_AND_ASSIGN(large.emplace_back(), budget.Take(kMebibyte));
  }
  const absl::Status refused = budget.Take(kMebibyte).status();
  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("memory of all requests: expected at most 7.3 MB, found "
                                       "7.3 MB of others and 1.0 MB of this one"),
                             HasSubstr("--request-memory-max"), HasSubstr("try again in 1s"))));
  EXPECT_EQ(PushBackOf(refused), absl::Seconds(1));
  EXPECT_THAT(budget.Take(RequestBudget::kSmallBytesMax + 1),
              StatusIs(absl::StatusCode::kResourceExhausted));

  std::vector<RequestBudget::Share> small;
  for (int i = 0; i < 16; ++i) {
    ASSERT_OK_AND_ASSIGN(small.emplace_back(), budget.Take(RequestBudget::kSmallBytesMax));
  }
  EXPECT_EQ(budget.taken(), budget.bytes_max());
  EXPECT_THAT(budget.Take(1), StatusIs(absl::StatusCode::kResourceExhausted));
  large.pop_back();
  EXPECT_OK(budget.Take(1));
}

TEST(RequestBudgetTest, OneThatNeverFitsIsNotToldToComeAgain) {
  RequestBudget budget(8 * kMebibyte);
  const absl::Status refused = budget.Take(7 * kMebibyte + 1).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("memory of a request: expected at most 7.3 MB")));
  EXPECT_EQ(PushBackOf(refused), std::nullopt);
  EXPECT_EQ(budget.taken(), 0);
}

TEST(RequestBudgetTest, AShareMayOutliveTheBudget) {
  std::optional<RequestBudget> budget(8 * kMebibyte);
  ASSERT_OK_AND_ASSIGN(const RequestBudget::Share share, budget->Take(1));
  budget.reset();
}

TEST(RequestBudgetTest, AnEighthOfTheMemoryIsForRequestsWithinBounds) {
  EXPECT_EQ(RequestBudget::DefaultOf(100 * kMebibyte), 64 * kMebibyte);
  EXPECT_EQ(RequestBudget::DefaultOf(2048 * kMebibyte), 256 * kMebibyte);
  EXPECT_EQ(RequestBudget::DefaultOf(int64_t{1} << 40), 1024 * kMebibyte);
}

}  // namespace
}  // namespace crossmesh
