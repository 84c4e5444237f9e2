// The only mutex of this repository: std::mutex with clang's thread safety annotations.
//
// absl::Mutex of the distribution is not instrumented, so ThreadSanitizer would report races where
// there are none. Members and methods are annotated with the ABSL_ macros that this header brings
// in:
//
//   Mutex mutex_;
//   std::deque<Event> events_ ABSL_GUARDED_BY(mutex_);
//   void DrainLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include <absl/base/thread_annotations.h>
#include <absl/time/time.h>

namespace crossmesh {

// Not recursive. Thread-safe.
class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex for a scope.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }

  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits may wake for no reason, so they stand in a loop that tests the condition:
//
//   MutexLock lock(mutex_);
//   while (events_.empty()) not_empty_.Wait(mutex_);
//
// Thread-safe.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // Releases `mutex`, waits, and holds it again on return.
  void Wait(Mutex& mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  // As Wait, for at most `timeout`. Returns whether the time ran out.
  bool WaitFor(Mutex& mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    // A year is for ever, and does not overflow when added to the clock.
    const auto bounded = absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(24 * 365)));
    const std::cv_status status = condition_.wait_for(lock, bounded);
    lock.release();
    return status == std::cv_status::timeout;
  }

  void Signal() { condition_.notify_one(); }
  void SignalAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace crossmesh
