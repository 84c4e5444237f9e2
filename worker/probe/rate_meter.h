#pragma once

#include <cstdint>
#include <vector>

#include <absl/time/time.h>

namespace crossmesh {

// At which rate bytes arrive on a connection. Thread-compatible.
class RateMeter {
 public:
  // `begin`: when they may begin to come. Times are those of a monotonic clock.
  explicit RateMeter(absl::Duration begin) : samples_{{begin, 0}}, last_{begin, 0} {}

  // `bytes` more have arrived at `now`, which is not before the last time.
  void Add(absl::Duration now, int64_t bytes);

  int64_t bytes() const { return last_.bytes; }
  // Over the last three quarters of the time up to the last arrival: while a connection is young it
  // is slower than its link, and what shapes a link lets the first bytes pass at once. 0: nothing
  // has arrived, or no time has passed.
  int64_t BytesPerSecond() const;

 private:
  struct Sample {
    absl::Duration time;
    int64_t bytes = 0;  // since the begin
  };

  std::vector<Sample> samples_;  // at most one per millisecond
  Sample last_;
};

}  // namespace crossmesh
