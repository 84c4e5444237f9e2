#include "common/rpc/outgoing_queue.h"

#include "common/testing/status_matchers.h"

#include <string>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using Queue = OutgoingQueue<std::string>;
using Action = Queue::Action;

// The action that a push asks for; kFinish, which none does, when it was not taken.
Action Pushed(Queue& queue, const std::string& message) {
  Action action = Action::kNone;
  return queue.Push(message, action) ? action : Action::kFinish;
}

TEST(OutgoingQueueTest, OneMessageIsInFlightAndTheOthersFollowInOrder) {
  Queue queue;
  EXPECT_EQ(Pushed(queue, "a"), Action::kWrite);
  EXPECT_EQ(Pushed(queue, "b"), Action::kNone);
  EXPECT_EQ(queue.front(), "a");
  EXPECT_EQ(queue.OnWritten(true), Action::kWrite);
  EXPECT_EQ(queue.front(), "b");
  EXPECT_EQ(queue.OnWritten(true), Action::kNone);
  EXPECT_EQ(Pushed(queue, "c"), Action::kWrite);
}

TEST(OutgoingQueueTest, AnIdleQueueFinishesWhenClosed) {
  Queue queue;
  EXPECT_EQ(queue.Close(absl::NotFoundError("gone")), Action::kFinish);
  EXPECT_EQ(queue.Close(absl::OkStatus()), Action::kNone);
  EXPECT_EQ(queue.Abort(absl::OkStatus()), Action::kNone);
  EXPECT_THAT(queue.status(), StatusIs(absl::StatusCode::kNotFound));
  Action action = Action::kWrite;
  EXPECT_FALSE(queue.Push("late", action));
  EXPECT_EQ(action, Action::kNone);
}

TEST(OutgoingQueueTest, ACloseWaitsForWhatIsQueued) {
  Queue queue;
  Pushed(queue, "a");
  Pushed(queue, "b");
  EXPECT_EQ(queue.Close(absl::OkStatus()), Action::kNone);
  EXPECT_EQ(queue.OnWritten(true), Action::kWrite);
  EXPECT_EQ(queue.OnWritten(true), Action::kFinish);
}

TEST(OutgoingQueueTest, AnAbortWaitsOnlyForTheMessageInFlight) {
  Queue queue;
  Pushed(queue, "a");
  Pushed(queue, "b");
  EXPECT_EQ(queue.Close(absl::OkStatus()), Action::kNone);
  EXPECT_EQ(queue.Abort(absl::CancelledError("")), Action::kNone);
  EXPECT_EQ(queue.front(), "a");
  EXPECT_EQ(queue.OnWritten(true), Action::kFinish);
}

TEST(OutgoingQueueTest, ABrokenStreamDropsWhatIsQueued) {
  Queue queue;
  Pushed(queue, "a");
  Pushed(queue, "b");
  EXPECT_EQ(queue.OnWritten(false), Action::kFinish);
  EXPECT_THAT(queue.status(), StatusIs(absl::StatusCode::kCancelled));
}

TEST(OutgoingQueueTest, AFullQueueEndsTheStream) {
  Queue queue(2);
  Pushed(queue, "a");
  Pushed(queue, "b");
  Action action = Action::kWrite;
  EXPECT_FALSE(queue.Push("c", action));
  EXPECT_EQ(action, Action::kNone);
  EXPECT_TRUE(queue.overflowed());
  EXPECT_EQ(queue.OnWritten(true), Action::kFinish);
  EXPECT_THAT(queue.status(), StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace crossmesh
