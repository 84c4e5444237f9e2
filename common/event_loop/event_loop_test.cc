#include "common/event_loop/event_loop.h"

#include "common/base/fake_clock.h"
#include "common/testing/status_matchers.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

class EventLoopTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(loop_, EventLoop::Create(clock_, {.spin = absl::ZeroDuration()}));
  }

  // Runs what is ready.
  void Run() {
    while (loop_->RunOnce(absl::ZeroDuration()) > 0) {
    }
  }

  EventLoop::Task Note(int value) {
    return [this, value] { notes_.push_back(value); };
  }

  FakeClock clock_;
  std::vector<int> notes_;
  std::unique_ptr<EventLoop> loop_;
};

// Does nothing by itself; counts what the loop asks of it.
class FakeSource final : public EventSource {
 public:
  explicit FakeSource(EventFd event_fd) : event_fd_(std::move(event_fd)) {}

  int Progress() override {
    if (on_progress) on_progress();
    if (event_fd_.Drain()) ++events;
    return std::exchange(events, 0);
  }
  int event_fd() const override { return event_fd_.fd(); }
  bool Arm() override {
    ++arms;
    if (on_arm) on_arm();
    return events == 0;
  }

  void Wake() { event_fd_.Signal(); }

  int events = 0;
  int arms = 0;
  std::function<void()> on_progress;
  std::function<void()> on_arm;

 private:
  EventFd event_fd_;
};

TEST_F(EventLoopTest, TasksRunInTheOrderPosted) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(loop_->Post(Note(i)));
  Run();
  EXPECT_THAT(notes_, ElementsAre(0, 1, 2));
}

TEST_F(EventLoopTest, ATaskCanPostAnother) {
  loop_->Post([this] {
    loop_->Post(Note(2));
    Note(1)();
  });
  Run();
  EXPECT_THAT(notes_, ElementsAre(1, 2));
}

TEST_F(EventLoopTest, TimersRunWhenDueInOrder) {
  loop_->RunAfter(absl::Milliseconds(20), Note(3));
  loop_->RunAfter(absl::Milliseconds(10), Note(1));
  loop_->RunAfter(absl::Milliseconds(10), Note(2));
  Run();
  EXPECT_THAT(notes_, ElementsAre());
  clock_.Advance(absl::Milliseconds(10));
  Run();
  EXPECT_THAT(notes_, ElementsAre(1, 2));
  clock_.Advance(absl::Milliseconds(10));
  Run();
  EXPECT_THAT(notes_, ElementsAre(1, 2, 3));
}

TEST_F(EventLoopTest, ACancelledTimerDoesNotRun) {
  const TimerId timer = loop_->RunAfter(absl::Milliseconds(10), Note(1));
  EXPECT_TRUE(loop_->Cancel(timer));
  EXPECT_FALSE(loop_->Cancel(timer));
  EXPECT_FALSE(loop_->Cancel(TimerId()));
  clock_.Advance(absl::Milliseconds(10));
  Run();
  EXPECT_THAT(notes_, ElementsAre());
}

TEST_F(EventLoopTest, ATimerCanCancelAnotherThatIsDue) {
  TimerId second;
  loop_->RunAfter(absl::Milliseconds(1), [&] { EXPECT_TRUE(loop_->Cancel(second)); });
  second = loop_->RunAfter(absl::Milliseconds(1), Note(2));
  clock_.Advance(absl::Milliseconds(1));
  Run();
  EXPECT_THAT(notes_, ElementsAre());
}

TEST_F(EventLoopTest, ATimerWithoutDelayThatRestartsItselfLetsOthersRun) {
  std::function<void()> again = [&] {
    notes_.push_back(1);
    loop_->RunAfter(absl::ZeroDuration(), again);
  };
  again();
  EXPECT_EQ(loop_->RunOnce(absl::ZeroDuration()), 1);
  EXPECT_EQ(loop_->RunOnce(absl::ZeroDuration()), 1);
  EXPECT_THAT(notes_, ElementsAre(1, 1, 1));
}

TEST_F(EventLoopTest, ASourceIsArmedBeforeTheLoopWaits) {
  ASSERT_OK_AND_ASSIGN(EventFd event_fd, EventFd::Create());
  FakeSource source(std::move(event_fd));
  loop_->AddSource(source);
  source.on_arm = [&] { source.Wake(); };  // the race that arming is for
  EXPECT_EQ(loop_->RunOnce(absl::InfiniteDuration()), 1);
  EXPECT_EQ(source.arms, 1);
  loop_->RemoveSource(source);
}

TEST_F(EventLoopTest, ASourceThatCannotBeArmedIsProgressedInstead) {
  ASSERT_OK_AND_ASSIGN(EventFd event_fd, EventFd::Create());
  FakeSource source(std::move(event_fd));
  loop_->AddSource(source);
  source.on_arm = [&] { source.events = 2; };
  EXPECT_EQ(loop_->RunOnce(absl::InfiniteDuration()), 2);
  loop_->RemoveSource(source);
}

TEST_F(EventLoopTest, WhatIsPostedWhileTheLoopFallsAsleepRuns) {
  ASSERT_OK_AND_ASSIGN(EventFd event_fd, EventFd::Create());
  FakeSource source(std::move(event_fd));
  loop_->AddSource(source);
  source.on_arm = [&] { loop_->Post(Note(1)); };
  EXPECT_EQ(loop_->RunOnce(absl::InfiniteDuration()), 1);
  EXPECT_THAT(notes_, ElementsAre(1));
  loop_->RemoveSource(source);
}

TEST_F(EventLoopTest, ARemovedSourceIsLeftAlone) {
  ASSERT_OK_AND_ASSIGN(EventFd event_fd, EventFd::Create());
  FakeSource source(std::move(event_fd));
  loop_->AddSource(source);
  loop_->RemoveSource(source);
  source.events = 1;
  EXPECT_EQ(loop_->RunOnce(absl::ZeroDuration()), 0);
}

TEST(EventLoopThreadTest, ManyThreadsPostToOneLoop) {
  RealClock clock;
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<EventLoop> loop, EventLoop::Create(clock, {}));
  loop->Start();
  int count = 0;  // confined to the loop
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 1000; ++j) EXPECT_TRUE(loop->Post([&] { ++count; }));
    });
  }
  for (std::thread& thread : threads) thread.join();
  int seen = 0;
  EXPECT_TRUE(loop->RunAndWait([&] { seen = count; }));
  EXPECT_EQ(seen, 4000);
}

TEST(EventLoopThreadTest, ASleepingLoopWakesForATimer) {
  RealClock clock;
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<EventLoop> loop, EventLoop::Create(clock, {}));
  const absl::Duration start = clock.Monotonic();
  bool ran = false;
  loop->RunAfter(absl::Milliseconds(20), [&] { ran = true; });
  while (!ran) loop->RunOnce(absl::InfiniteDuration());
  EXPECT_GE(clock.Monotonic() - start, absl::Milliseconds(20));
}

TEST(EventLoopThreadTest, WhatWasPostedToALoopThatWasAwakeDoesNotWakeItLater) {
  RealClock clock;
  ASSERT_OK_AND_ASSIGN(auto loop, EventLoop::Create(clock, {.spin = absl::ZeroDuration()}));
  loop->Post([] {});
  EXPECT_EQ(loop->RunOnce(absl::ZeroDuration()), 1);
  loop->RunAfter(absl::Milliseconds(5), [] {});
  EXPECT_EQ(loop->RunOnce(absl::InfiniteDuration()), 1);
}

TEST(EventLoopThreadTest, ALoopLooksAgainAfterATaskAndSleepsAfterATimer) {
  RealClock clock;
  ASSERT_OK_AND_ASSIGN(auto loop, EventLoop::Create(clock, {.spin = absl::Hours(1)}));
  ASSERT_OK_AND_ASSIGN(EventFd event_fd, EventFd::Create());
  FakeSource source(std::move(event_fd));
  loop->AddSource(source);
  int looks = 0;
  source.on_progress = [&] { source.events = ++looks == 10 ? 1 : 0; };
  loop->RunAfter(absl::ZeroDuration(), [] {});
  EXPECT_EQ(loop->RunOnce(absl::ZeroDuration()), 1);
  EXPECT_EQ(loop->RunOnce(absl::Microseconds(1)), 0);
  EXPECT_EQ(source.arms, 1);
  loop->Post([] {});
  EXPECT_EQ(loop->RunOnce(absl::ZeroDuration()), 1);
  EXPECT_EQ(loop->RunOnce(absl::InfiniteDuration()), 1);
  EXPECT_EQ(source.arms, 1);
  loop->RemoveSource(source);
}

TEST(EventLoopThreadTest, StopRunsWhatWasPostedBeforeAndNothingAfter) {
  RealClock clock;
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<EventLoop> loop, EventLoop::Create(clock, {}));
  loop->Start();
  int count = 0;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(loop->Post([&] { ++count; }));
  loop->Stop();
  EXPECT_EQ(count, 100);
  EXPECT_FALSE(loop->Post([&] { ++count; }));
  EXPECT_FALSE(loop->RunAndWait([&] { ++count; }));
  loop->Stop();
  EXPECT_EQ(count, 100);
}

}  // namespace
}  // namespace crossmesh
