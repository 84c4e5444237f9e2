#pragma once

#include "common/base/clock.h"

#include <cstdint>
#include <optional>

#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// Warns of connections that come to nothing, of each kind so many times a second: what others send
// must not fill the log. Each line counts those that were left out before it. Thread-compatible.
class ConnectionWarnings {
 public:
  static constexpr int kLinesPerSecond = 10;

  // `clock` outlives it.
  explicit ConnectionWarnings(const Clock& clock) : clock_(clock) {}

  void TooMany(int64_t without_handshake_max);
  void Malformed(absl::string_view other_side, absl::string_view problem);

 private:
  struct Limit {
    absl::Duration begin = -absl::InfiniteDuration();  // of the second
    int lines = 0;                                     // in it
    int64_t left_out = 0;
  };

  // How many were left out; nothing: this one is as well.
  std::optional<int64_t> Pass(Limit& limit) const;

  const Clock& clock_;
  Limit too_many_;
  Limit malformed_;
};

}  // namespace crossmesh
