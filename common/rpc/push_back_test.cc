#include "common/rpc/push_back.h"

#include "common/rpc/error_details.h"
#include "common/rpc/not_leader.h"
#include "common/testing/status_matchers.h"

#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(PushBackTest, WhatIsSaidIsHeardToTheMillisecondAbove) {
  const absl::Status said = PushBackError("worker w: too many", absl::Microseconds(1500));
  EXPECT_EQ(PushBackOf(said), absl::Milliseconds(2));
  EXPECT_THAT(std::string(said.message()), testing::HasSubstr("try again in 2ms"));
}

TEST(PushBackTest, AnErrorKeepsItsCodeAndWhatItSays) {
  const absl::Status said =
      WithPushBack(absl::ResourceExhaustedError("planner: too many"), absl::Seconds(2));
  EXPECT_THAT(said,
              StatusIs(absl::StatusCode::kResourceExhausted, "planner: too many; try again in 2s"));
  EXPECT_EQ(PushBackOf(said), absl::Seconds(2));
}

TEST(PushBackTest, WhatAStrangerSaysIsBounded) {
  for (const auto& [text, heard] : {std::pair("-7", std::optional(absl::ZeroDuration())),
                                    std::pair("999999999999", std::optional(absl::Minutes(1))),
                                    std::pair("soon", std::optional<absl::Duration>())}) {
    absl::Status status = PushBackError("x", absl::ZeroDuration());
    SetErrorDetail(status, "retry_after_ms", text);
    EXPECT_EQ(PushBackOf(status), heard) << text;
  }
}

TEST(PushBackTest, OtherErrorsSayNothing) {
  EXPECT_EQ(PushBackOf(absl::OkStatus()), std::nullopt);
  EXPECT_EQ(PushBackOf(absl::UnavailableError("gone")), std::nullopt);
  EXPECT_EQ(PushBackOf(NotLeaderError("a:1")), std::nullopt);
}

}  // namespace
}  // namespace crossmesh
