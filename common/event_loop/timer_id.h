#pragma once

#include <cstdint>

#include <absl/time/time.h>

namespace crossmesh {

// Names a timer of one event loop; one that was never started names none.
class TimerId {
 public:
  TimerId() = default;

 private:
  friend class EventLoop;
  TimerId(absl::Duration due, uint64_t number) : due_(due), number_(number) {}

  // Timers that are due at once run in the order in which they were started.
  friend bool operator<(const TimerId& a, const TimerId& b) {
    return a.due_ != b.due_ ? a.due_ < b.due_ : a.number_ < b.number_;
  }

  absl::Duration due_;
  uint64_t number_ = 0;
};

}  // namespace crossmesh
