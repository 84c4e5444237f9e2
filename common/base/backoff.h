#pragma once

#include <cstdint>
#include <random>

#include <absl/time/time.h>

namespace crossmesh {

// Pauses between attempts, with full jitter: the n-th is uniform between 0 and the smaller of
// max and initial x 2^n, so that thousands of workers that lost one controller do not come back in
// step. Thread-compatible.
class Backoff {
 public:
  struct Options {
    absl::Duration initial = absl::Milliseconds(100);
    absl::Duration max = absl::Seconds(3);
  };

  Backoff(Options options, uint64_t seed) : options_(options), random_(seed) { Reset(); }

  absl::Duration Next();
  // After a success.
  void Reset() { ceiling_ = options_.initial; }

 private:
  const Options options_;
  std::mt19937_64 random_;
  absl::Duration ceiling_;
};

}  // namespace crossmesh
