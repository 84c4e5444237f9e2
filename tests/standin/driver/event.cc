#include "tests/standin/driver/event.h"

#include "tests/standin/driver/journal.h"

#include <algorithm>

namespace crossmesh {

int64_t Event::Record() {
  MutexLock lock(mutex_);
  return ++recorded_;
}

int64_t Event::recorded() {
  MutexLock lock(mutex_);
  return recorded_;
}

void Event::Complete(int64_t record) {
  MutexLock lock(mutex_);
  completed_ = std::max(completed_, record);
  time_ns_ = MonotonicNs();
  changed_.SignalAll();
}

bool Event::completed(int64_t record) {
  MutexLock lock(mutex_);
  return completed_ >= record;
}

void Event::Wait(int64_t record) {
  MutexLock lock(mutex_);
  while (completed_ < record) changed_.Wait(mutex_);
}

int64_t Event::time_ns() {
  MutexLock lock(mutex_);
  return time_ns_;
}

}  // namespace crossmesh
