#pragma once

#include "common/base/mutex.h"
#include "common/base/thread.h"

#include <deque>
#include <string>

#include <absl/functional/any_invocable.h>

namespace crossmesh {

// A stream: a thread that runs what it is given, in order. Its priority is only kept. Thread-safe.
class Stream {
 public:
  using Task = absl::AnyInvocable<void()>;

  // As of an H100; the greatest is the lowest number.
  static constexpr int kLeastPriority = 0;
  static constexpr int kGreatestPriority = -5;

  Stream(int device, int priority);

  void Enqueue(Task task);
  bool idle();
  void WaitUntilIdle();
  // Runs what is queued, then ends the thread.
  void Stop();

  // Until the matching Release, uses are violations; the text says why. False, and nothing
  // changes, while it is held already.
  bool Hold(std::string reason);
  void Release();
  std::string held_for();  // empty when it is not held

  int device() const { return device_; }
  int priority() const { return priority_; }

 private:
  void Run();

  const int device_;
  const int priority_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;  // a task that was taken from the queue
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::string held_for_ ABSL_GUARDED_BY(mutex_);

  Thread thread_;
};

}  // namespace crossmesh
