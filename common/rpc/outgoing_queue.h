#pragma once

#include "common/base/check.h"
#include "common/base/mutex.h"

#include <cstddef>
#include <deque>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

// The writing half of a stream: one message in flight, the others queued. It never calls gRPC, but
// tells its owner what to do, so that nothing is called under its lock. Every answer must be acted
// on: kWrite once for every message, kFinish once and last, with no message in flight. Thread-safe.
template <typename Message>
class OutgoingQueue {
 public:
  enum class Action {
    kNone,
    kWrite,   // write front(), then call OnWritten
    kFinish,  // write nothing any more; status() says why
  };

  static constexpr size_t kMessagesMax = 256;

  explicit OutgoingQueue(size_t messages_max = kMessagesMax) : messages_max_(messages_max) {}

  // Takes the message, unless the queue was closed before. When it is full, the queue is emptied
  // and closed with ResourceExhausted. Returns whether the message was taken.
  bool Push(Message message, Action& action) {
    MutexLock lock(mutex_);
    action = Action::kNone;
    if (closed_) return false;
    if (queue_.size() >= messages_max_) {
      overflowed_ = true;
      DropQueueLocked();
      action = CloseLocked(absl::ResourceExhaustedError(
          absl::StrCat("the reader is ", messages_max_, " messages behind; the stream ends here")));
      return false;
    }
    queue_.push_back(std::move(message));
    if (!in_flight_) action = StartLocked();
    return true;
  }

  // Nothing more is taken; what is queued is still written. Only the first close counts.
  Action Close(absl::Status status) {
    MutexLock lock(mutex_);
    return CloseLocked(std::move(status));
  }

  // As Close, but what is queued is dropped, even when the queue was closed before.
  Action Abort(absl::Status status) {
    MutexLock lock(mutex_);
    DropQueueLocked();
    return CloseLocked(std::move(status));
  }

  // The message in flight was written; or, not `ok`, the stream is broken.
  Action OnWritten(bool ok) {
    MutexLock lock(mutex_);
    CHECK(in_flight_);
    in_flight_ = false;
    queue_.pop_front();
    if (!ok) {
      DropQueueLocked();
      return CloseLocked(absl::CancelledError("the stream is broken"));
    }
    return queue_.empty() ? FinishIfClosedLocked() : StartLocked();
  }

  // The message in flight: valid and unchanged from kWrite to OnWritten.
  const Message& front() const {
    MutexLock lock(mutex_);
    return queue_.front();
  }

  // Was it closed because it was full?
  bool overflowed() const {
    MutexLock lock(mutex_);
    return overflowed_;
  }

  // Why the queue was closed.
  absl::Status status() const {
    MutexLock lock(mutex_);
    return status_;
  }

 private:
  Action StartLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    in_flight_ = true;
    return Action::kWrite;
  }
  Action CloseLocked(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!closed_) status_ = std::move(status);
    closed_ = true;
    return FinishIfClosedLocked();
  }
  Action FinishIfClosedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!closed_ || finished_ || in_flight_ || !queue_.empty()) return Action::kNone;
    finished_ = true;
    return Action::kFinish;
  }
  // All but the message in flight.
  void DropQueueLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    queue_.erase(queue_.begin() + (in_flight_ ? 1 : 0), queue_.end());
  }

  const size_t messages_max_;

  mutable Mutex mutex_;
  // The message in flight, if any, is the first. A deque keeps it in place while others are added.
  std::deque<Message> queue_ ABSL_GUARDED_BY(mutex_);
  bool in_flight_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool overflowed_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
