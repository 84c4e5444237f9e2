#pragma once

#include "common/plan/plan.h"

#include <cstdint>

namespace crossmesh {

// In which period of the execution each chunk of a relay leaves its root, where GPUs go period by
// period: that in which its due time lies. Of one relay a period takes at most as many bytes as two
// of the plan's largest chunks have; what is due beyond that goes in the periods that follow. So a
// relay without a due interval of its own, or with a short one, is spread by its bytes.
//
// Example: a relay of 4 MiB in chunks of at most 1 MiB, in an execution of 8 periods. Due all the
// time, it has 8 chunks, in periods 0 to 7. Due at 0, it has 4, in periods 0, 0, 1, 1.
class ChunkPeriods {
 public:
  ChunkPeriods(int64_t periods, int64_t chunk_bytes)
      : periods_(periods), bytes_max_(kLargestChunks * chunk_bytes) {}

  // Of the next chunk; in the relay's order.
  int64_t Next(int32_t due, int64_t bytes) {
    const int64_t due_period = (due * periods_ + kRoundedParts) / DueTime::kParts;
    if (due_period > period_) {
      period_ = due_period;
      period_bytes_ = 0;
    } else if (period_bytes_ + bytes > bytes_max_) {
      ++period_;
      period_bytes_ = 0;
    }
    period_bytes_ += bytes;
    return period_;
  }

 private:
  // Where chunks begin at a tensor's edges, a relay has more of them than periods; and two may
  // begin in one period where they are as long as one.
  static constexpr int64_t kLargestChunks = 2;
  // Due times are rounded down, to parts of the execution: a third of it lies just before the
  // second of three periods. What is due so little before a period is due in it.
  static constexpr int64_t kRoundedParts = DueTime::kParts / 64;

  const int64_t periods_;
  const int64_t bytes_max_;
  int64_t period_ = 0;
  int64_t period_bytes_ = 0;
};

}  // namespace crossmesh
