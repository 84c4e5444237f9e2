#include "controller/catalog/single_flight.h"

#include "common/base/thread.h"
#include "common/testing/status_matchers.h"

#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;
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
               on_told_();
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
  std::function<void()> on_told_ = [] {};
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

TEST_F(SingleFlightTest, WhatIsCancelledBetweenTheWorkAndItsAnswerIsToldWhatTheWorkCameTo) {
  for (const std::string gone : {"a", "b", "all"}) {
    told_.clear();
    gone_.clear();
    Do("a", 1, [&](CancelCheck cancelled) {
      Do("b", 1, [&](CancelCheck c) { return Make(c); });
      Flights::Result made = Make(cancelled);
      gone_ = gone;
      return made;
    });
    EXPECT_THAT(told_, ElementsAre(StartsWith("a="), StartsWith("b="))) << gone;
  }
}

TEST_F(SingleFlightTest, WhatIsCancelledBetweenTwoAnswersIsToldAsWell) {
  on_told_ = [this] { gone_ = "b"; };
  Do("a", 1, [&](CancelCheck cancelled) {
    Do("b", 1, [&](CancelCheck c) { return Make(c); });
    return Make(cancelled);
  });
  EXPECT_THAT(told_, ElementsAre("a=1", "b=1"));
}

TEST_F(SingleFlightTest, WhatFailsFailsForAll) {
  Do("a", 1, [&](CancelCheck /*cancelled*/) -> Flights::Result {
    Do("b", 1, [&](CancelCheck c) { return Make(c); });
    return absl::InvalidArgumentError("no");
  });
  EXPECT_THAT(told_, ElementsAre("a!INVALID_ARGUMENT", "b!INVALID_ARGUMENT"));
}

// What still wants the work is never told that it was given up, whatever is cancelled meanwhile.
TEST(SingleFlightThreadsTest, EachCallIsToldOnceAndCancelledOnlyIfItWas) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 2000;
  Flights flights;
  std::atomic<int> told = 0;
  std::atomic<int> wrong = 0;
  const auto work = [](CancelCheck cancelled) -> Flights::Result {
    for (int step = 0; step < 3; ++step) {
      if (cancelled()) return absl::CancelledError("not wanted");
    }
    return std::make_shared<const int>(1);
  };
  const auto call = [&](int looks) {
    // How often it is looked at before it is cancelled.
    const auto left = std::make_shared<std::atomic<int>>(looks);
    flights.Do(Digest::Of("one"),
               {.cancelled = [left] { return left->fetch_sub(1) <= 0; },
                .done =
                    [&told, &wrong, left](const Flights::Result& result) {
                      ++told;
                      if (!result.ok() && *left >= 0) ++wrong;
                    }},
               work);
  };
  std::vector<Thread> threads;
  for (int seed = 0; seed < kThreads; ++seed) {
    threads.emplace_back("caller", [&call, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < kCalls; ++i) {
        call(random() % 2 == 0 ? 1000 : static_cast<int>(random() % 4));
      }
    });
  }
  threads.clear();
  EXPECT_EQ(told, kThreads * kCalls);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace crossmesh
