#pragma once

#include <optional>

#include <absl/time/time.h>

namespace crossmesh {

// How many workers may register at a time: thousands that come back at once are told when to come
// again, each at a time of its own, so that those that are there keep being heard. A bucket of
// tokens; who finds it empty gets a place in a line that moves as fast as it fills. Times are of
// one clock that never goes back. Thread-compatible.
class RegistrationGate {
 public:
  struct Options {
    double per_second = 500;
    double burst = 500;  // at once, after a time without any
    // No one is told to stay away for longer.
    absl::Duration wait_max = absl::Seconds(10);
  };

  explicit RegistrationGate(Options options) : options_(options), tokens_(options.burst) {}

  // Nothing: it may register now. Else after this time it is to ask again.
  std::optional<absl::Duration> Admit(absl::Duration now);

 private:
  const Options options_;
  double tokens_;
  absl::Duration filled_;     // when `tokens_` was so many
  absl::Duration line_ends_;  // when the last one that was sent away is expected
};

}  // namespace crossmesh
