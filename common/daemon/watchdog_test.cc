#include "common/daemon/watchdog.h"

#include "common/base/event_fd.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A thread that answers when the test says.
class PlayedThread {
 public:
  Watchdog::Ask ask() {
    return [this](std::function<void()> answered) { questions_.push_back(std::move(answered)); };
  }
  void Answer() {
    for (const auto& answer : std::exchange(questions_, {})) answer();
  }
  size_t asked() const { return questions_.size(); }

 private:
  std::vector<std::function<void()>> questions_;
};

struct Heard {
  int alive = 0;
  std::vector<std::string> silent;

  Watchdog::Options Options() {
    return {.on_alive = [this] { ++alive; },
            .on_silent = [this](const std::string& what) { silent.push_back(what); }};
  }
};

TEST(WatchdogTest, WhatAnswersIsAlive) {
  Heard heard;
  Watchdog watchdog(heard.Options());
  PlayedThread thread;
  watchdog.Watch("loop", thread.ask());
  for (int i = 0; i < 100; ++i) {
    watchdog.Look();
    thread.Answer();
  }
  EXPECT_EQ(heard.alive, 100);
  EXPECT_THAT(heard.silent, IsEmpty());
  EXPECT_FALSE(watchdog.WhatIsSilent().has_value());
}

TEST(WatchdogTest, SilenceIsToldAfterItsTimeAndOnce) {
  Heard heard;
  Watchdog watchdog(heard.Options());
  PlayedThread thread, other;
  watchdog.Watch("loop", thread.ask());
  watchdog.Watch("other", other.ask());
  for (int seconds = 0; seconds < 30; ++seconds) {
    watchdog.Look();
    other.Answer();
    EXPECT_EQ(watchdog.WhatIsSilent().has_value(), seconds >= 5) << seconds;
    EXPECT_EQ(heard.silent.size(), seconds >= 15 ? 1 : 0) << seconds;
  }
  EXPECT_THAT(heard.silent, ElementsAre("loop: silent for 15.00 s"));
  EXPECT_EQ(heard.alive, 5);
  EXPECT_EQ(thread.asked(), 1) << "what does not answer is not asked again";
}

TEST(WatchdogTest, WhatAnswersAgainIsAliveAgain) {
  Heard heard;
  Watchdog watchdog(heard.Options());
  PlayedThread thread;
  watchdog.Watch("loop", thread.ask());
  for (int seconds = 0; seconds < 10; ++seconds) watchdog.Look();
  EXPECT_TRUE(watchdog.WhatIsSilent().has_value());
  thread.Answer();
  watchdog.Look();
  EXPECT_FALSE(watchdog.WhatIsSilent().has_value());
  for (int seconds = 0; seconds < 14; ++seconds) watchdog.Look();
  EXPECT_THAT(heard.silent, IsEmpty()) << "silence begins anew";
}

// Whatever several threads do, the watchdog says what counting by hand does.
TEST(WatchdogTest, ItCountsAsOneDoesByHand) {
  const uint64_t seed = FromEnvironment("CROSSMESH_TEST_SEED", 1);
  SCOPED_TRACE(absl::StrCat("CROSSMESH_TEST_SEED=", seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    Heard heard;
    Watchdog watchdog(heard.Options());
    std::vector<PlayedThread> threads(3);
    std::vector<int> silent(3, 0);
    std::vector<bool> owes(3, false);
    for (size_t i = 0; i < threads.size(); ++i) {
      watchdog.Watch(absl::StrCat("t", i), threads[i].ask());
    }
    bool has_told = false;
    for (int look = 0; look < 60; ++look) {
      watchdog.Look();
      bool is_silent = false;
      for (size_t i = 0; i < threads.size(); ++i) {
        silent[i] = owes[i] ? silent[i] + 1 : 0;
        is_silent |= silent[i] >= 5;
        has_told |= silent[i] >= 15;
        owes[i] = random() % 12 != 0;
        if (!owes[i]) threads[i].Answer();
      }
      ASSERT_EQ(watchdog.WhatIsSilent().has_value(), is_silent) << "look " << look;
      ASSERT_EQ(heard.silent.size(), has_told ? 1 : 0) << "look " << look;
    }
  }
}

TEST(WatchdogTest, AnAnswerMayComeWhenTheWatchdogIsGone) {
  PlayedThread thread;
  {
    Watchdog watchdog({});
    watchdog.Watch("loop", thread.ask());
    watchdog.Look();
  }
  thread.Answer();
}

TEST(WatchdogTest, ItLooksByItself) {
  ASSERT_OK_AND_ASSIGN(EventFd looked, EventFd::Create());
  Watchdog watchdog({.every = absl::Milliseconds(1), .on_alive = [&] { looked.Signal(); }});
  watchdog.Watch("loop", [](const std::function<void()>& answered) { answered(); });
  watchdog.Start();
  pollfd waiting = {.fd = looked.fd(), .events = POLLIN};
  EXPECT_EQ(poll(&waiting, 1, /*timeout=*/20'000), 1);
  watchdog.Stop();
  watchdog.Stop();
}

}  // namespace
}  // namespace crossmesh
