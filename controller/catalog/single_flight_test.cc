#include "controller/catalog/single_flight.h"

#include "common/testing/status_matchers.h"

#include <memory>
#include <string>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using Flights = SingleFlight<int>;

// What calls are told, in order: "NAME=VALUE" or "NAME!CODE". Work that calls again stands for
// another thread that does so meanwhile.
class SingleFlightTest : public ::testing::Test {
 protected:
  void Do(const std::string& name, int key, absl::FunctionRef<Flights::Result(CancelCheck)> work) {
    flights_.Do(
        Digest::Of(std::to_string(key)),
        {.cancelled = [this, name] { return name == gone_ || gone_ == "all"; },
         .done =
             [this, name](const Flights::Result& result) {
               told_.push_back(name + (result.ok() ? "=" + std::to_string(**result)
                                                   : "!" + std::string(absl::StatusCodeToString(
                                                               result.status().code()))));
             }},
        work);
  }
  Flights::Result Make(CancelCheck cancelled) {
    ++made_;
    if (cancelled()) return absl::CancelledError("not wanted");
    return std::make_shared<const int>(made_);
  }

  Flights flights_;
  std::string gone_;
  int made_ = 0;
  std::vector<std::string> told_;
};

TEST_F(SingleFlightTest, WhatIsWantedTwiceAtOnceIsDoneOnce) {
  Do("a", 1, [&](CancelCheck cancelled) {
    Do("b", 1, [&](CancelCheck c) { return Make(c); });
    return Make(cancelled);
  });
  EXPECT_THAT(told_, ElementsAre("a=1", "b=1"));
}

TEST_F(SingleFlightTest, WhatIsWantedAgainLaterIsDoneAgainAndOtherThingsMeanwhile) {
  Do("a", 1, [&](CancelCheck cancelled) {
    Do("b", 2, [&](CancelCheck c) { return Make(c); });
    return Make(cancelled);
  });
  Do("c", 1, [&](CancelCheck c) { return Make(c); });
  EXPECT_THAT(told_, ElementsAre("b=1", "a=2", "c=3"));
}

TEST_F(SingleFlightTest, WorkGoesOnForTheOtherWhenTheFirstIsGone) {
  gone_ = "a";
  Do("a", 1, [&](CancelCheck cancelled) {
    EXPECT_TRUE(cancelled());
    return Make(cancelled);
  });
  EXPECT_THAT(told_, ElementsAre("a!CANCELLED"));
  Do("a", 1, [&](CancelCheck cancelled) {
    Do("b", 1, [&](CancelCheck c) { return Make(c); });
    return Make(cancelled);
  });
  EXPECT_THAT(told_, ElementsAre("a!CANCELLED", "a=2", "b=2"));
}

TEST_F(SingleFlightTest, WorkThatIsGivenUpIsNotJoined) {
  Do("a", 1, [&](CancelCheck cancelled) -> Flights::Result {
    gone_ = "all";
    EXPECT_TRUE(cancelled());
    gone_ = "a";
    Do("b", 1, [&](CancelCheck c) { return Make(c); });
    return absl::CancelledError("not wanted");
  });
  EXPECT_THAT(told_, ElementsAre("b=1", "a!CANCELLED"));
}

TEST_F(SingleFlightTest, WhatFailsFailsForAll) {
  Do("a", 1, [&](CancelCheck /*cancelled*/) -> Flights::Result {
    Do("b", 1, [&](CancelCheck c) { return Make(c); });
    return absl::InvalidArgumentError("no");
  });
  EXPECT_THAT(told_, ElementsAre("a!INVALID_ARGUMENT", "b!INVALID_ARGUMENT"));
}

}  // namespace
}  // namespace crossmesh
