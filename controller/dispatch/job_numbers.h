#pragma once

#include <atomic>
#include <cstdint>

namespace crossmesh {

// The numbers of all that this controller starts: operations, runs of pipelines and every start of
// a run's programs, so that what workers send each other never carries the number of something
// else. They count from the epoch, and so grow from one controller to the next. Where the clock has
// gone back the epoch is only one more than that of the last controller, which has numbered beyond
// it: so they also go on from what is on record. Thread-safe.
class JobNumbers {
 public:
  explicit JobNumbers(uint64_t epoch) : last_(epoch) {}

  uint64_t Next() { return ++last_; }
  // All that follow are greater.
  void SkipTo(uint64_t number) {
    uint64_t last = last_;
    while (last < number && !last_.compare_exchange_weak(last, number)) {
    }
  }

 private:
  std::atomic<uint64_t> last_;
};

}  // namespace crossmesh
