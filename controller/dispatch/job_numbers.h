#pragma once

#include <atomic>
#include <cstdint>

namespace crossmesh {

// The numbers of all that this controller starts: operations, runs of pipelines and every start of
// a run's programs, so that what workers send each other never carries the number of something
// else. They count from the epoch, and so grow from one controller to the next. Thread-safe.
class JobNumbers {
 public:
  explicit JobNumbers(uint64_t epoch) : last_(epoch) {}

  uint64_t Next() { return ++last_; }

 private:
  std::atomic<uint64_t> last_;
};

}  // namespace crossmesh
