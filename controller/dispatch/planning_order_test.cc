#include "controller/dispatch/planning_order.h"

#include "common/testing/status_matchers.h"

#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kLong = PlanningOrder::kLongCost;

class PlanningOrderTest : public ::testing::Test {
 protected:
  absl::Status Add(const std::string& client, int64_t cost, absl::Duration since = {}) {
    PlanningOrder::Waiting waiting{.request = {.client = client, .cost = cost}, .since = since};
    return order_.Add(waiting);
  }
  // As "client cost"; "" when there is none.
  std::string Next(bool long_too = true) {
    const auto next = order_.Next(long_too);
    return next.has_value() ? absl::StrCat(next->request.client, " ", next->request.cost) : "";
  }
  std::vector<std::string> All() {
    std::vector<std::string> all;
    while (order_.size() > 0) all.push_back(Next());
    return all;
  }

  PlanningOrder order_;
};

TEST_F(PlanningOrderTest, ClientsTakeTurnsHoweverManyJobsOneHas) {
  for (int i = 0; i < 3; ++i) ASSERT_OK(Add("a", 1));
  ASSERT_OK(Add("b", 2));
  ASSERT_OK(Add("c", 3));
  ASSERT_OK(Add("b", 2));
  EXPECT_THAT(All(), ElementsAre("a 1", "b 2", "c 3", "a 1", "b 2", "a 1"));
}

TEST_F(PlanningOrderTest, AClientThatComesAgainIsTheLast) {
  ASSERT_OK(Add("a", 1));
  ASSERT_OK(Add("b", 1));
  ASSERT_OK(Add("c", 1));
  EXPECT_EQ(Next(), "a 1");
  ASSERT_OK(Add("a", 1));
  EXPECT_THAT(All(), ElementsAre("b 1", "c 1", "a 1"));
}

TEST_F(PlanningOrderTest, OfAClientTheCheapestGoesFirstAndTheOldestOfEqualOnes) {
  for (const int64_t cost : {30, 10, 20}) ASSERT_OK(Add("a", cost));
  ASSERT_OK(Add("a", 10, absl::Seconds(5)));
  EXPECT_EQ(order_.Next(true)->since, absl::ZeroDuration());
  EXPECT_EQ(order_.Next(true)->since, absl::Seconds(5));
  EXPECT_THAT(All(), ElementsAre("a 20", "a 30"));
}

TEST_F(PlanningOrderTest, ALongJobIsOvertakenSoManyTimesOnly) {
  ASSERT_OK(Add("a", kLong));
  for (int i = 0; i < PlanningOrder::kOvertakenMax; ++i) {
    ASSERT_OK(Add("a", 1));
    EXPECT_EQ(Next(), "a 1");
  }
  ASSERT_OK(Add("a", 1));
  EXPECT_EQ(Next(), absl::StrCat("a ", kLong));
  EXPECT_EQ(Next(), "a 1");
}

TEST_F(PlanningOrderTest, WithoutRoomForLongJobsTheOthersGo) {
  ASSERT_OK(Add("a", kLong));
  ASSERT_OK(Add("b", kLong));
  ASSERT_OK(Add("b", kLong - 1));
  EXPECT_EQ(Next(/*long_too=*/false), absl::StrCat("b ", kLong - 1));
  EXPECT_EQ(Next(/*long_too=*/false), "");
  EXPECT_EQ(order_.size(), 2);
  // The turn of the client that had to wait is not lost.
  EXPECT_THAT(All(), ElementsAre(StartsWith("a "), StartsWith("b ")));
}

TEST_F(PlanningOrderTest, OneClientCannotTakeAllPlaces) {
  for (int i = 0; i < PlanningOrder::kWaitingOfClientMax; ++i) ASSERT_OK(Add("a", 1));
  EXPECT_THAT(
      Add("a", 1),
      StatusIs(absl::StatusCode::kResourceExhausted,
               HasSubstr("128 requests of this client wait already, expected at most 128")));
  EXPECT_OK(Add("b", 1));
  EXPECT_EQ(order_.size(), PlanningOrder::kWaitingOfClientMax + 1);
}

TEST_F(PlanningOrderTest, NoMoreThanAllPlacesAreTaken) {
  for (int i = 0; i < PlanningOrder::kWaitingMax; ++i) ASSERT_OK(Add(absl::StrCat(i), 1));
  EXPECT_THAT(Add("x", 1), StatusIs(absl::StatusCode::kResourceExhausted,
                                    HasSubstr("256 requests of all clients")));
  // What was refused has left nothing of its client.
  EXPECT_THAT(All(), Each(AllOf(Not(StartsWith("x")), Not(""))));
}

}  // namespace
}  // namespace crossmesh
