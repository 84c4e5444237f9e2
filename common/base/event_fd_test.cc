#include "common/base/event_fd.h"

#include "common/base/check.h"
#include "common/base/thread.h"

#include <gtest/gtest.h>
#include <poll.h>

namespace crossmesh {
namespace {

EventFd NewEventFd() {
  absl::StatusOr<EventFd> event = EventFd::Create();
  CHECK_OK(event);
  return *std::move(event);
}

bool Readable(const EventFd& event, int timeout_ms) {
  pollfd poll_fd = {.fd = event.fd(), .events = POLLIN, .revents = 0};
  return poll(&poll_fd, 1, timeout_ms) == 1;
}

TEST(EventFdTest, StartsClear) {
  EventFd event = NewEventFd();
  EXPECT_FALSE(Readable(event, 0));
  EXPECT_FALSE(event.Drain());
}

TEST(EventFdTest, ManySignalsAreDrainedAtOnce) {
  EventFd event = NewEventFd();
  event.Signal();
  event.Signal();
  EXPECT_TRUE(Readable(event, 0));
  EXPECT_TRUE(event.Drain());
  EXPECT_FALSE(Readable(event, 0));
}

TEST(EventFdTest, SignalWakesAnotherThread) {
  EventFd event = NewEventFd();
  bool woken = false;
  Thread waiter("waiter", [&] { woken = Readable(event, 10'000); });
  event.Signal();
  waiter.Join();
  EXPECT_TRUE(woken);
}

}  // namespace
}  // namespace crossmesh
