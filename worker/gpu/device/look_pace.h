#pragma once

#include <algorithm>
#include <cstdint>

#include <absl/time/time.h>

namespace crossmesh {

// How long to wait between two looks at work on a GPU, which gives no signal when some of it is
// done. A look costs more than to queue work, so most of them are to find at least half of what is
// queued done, and not all: then the GPU has no work. Thread-compatible.
class LookPace {
 public:
  LookPace(absl::Duration min, absl::Duration max) : min_(min), max_(max), delay_(min) {}

  // Of a look: what it found done, and what it left on the GPU.
  void Found(int64_t done, int64_t left) {
    if (done < left) {
      Slow();
    } else if (left == 0) {
      delay_ = std::max(delay_ / 2, min_);
    }
  }
  // A look found nothing to do.
  void Slow() { delay_ = std::min(2 * delay_, max_); }
  void Reset() { delay_ = min_; }

  absl::Duration delay() const { return delay_; }

 private:
  const absl::Duration min_;
  const absl::Duration max_;
  absl::Duration delay_;
};

}  // namespace crossmesh
