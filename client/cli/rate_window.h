#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include <absl/time/time.h>

namespace crossmesh {

// How fast a counter grows, over the last seconds: what counts tells of it every two, so that one
// difference alone would jump. Thread-compatible.
class RateWindow {
 public:
  static constexpr absl::Duration kLength = absl::Seconds(6);

  // At a time that is not after the last one nothing is new. A counter that has become less began
  // again.
  void Add(absl::Duration time, int64_t count) {
    if (!samples_.empty() && count < samples_.back().count) samples_.clear();
    if (!samples_.empty() && time <= samples_.back().time) return;
    samples_.push_back({time, count});
    while (samples_.size() > 2 && time - samples_.front().time > kLength) samples_.pop_front();
  }
  // Nothing before there are two samples.
  std::optional<double> per_second() const {
    if (samples_.size() < 2) return std::nullopt;
    const absl::Duration length = samples_.back().time - samples_.front().time;
    return static_cast<double>(samples_.back().count - samples_.front().count) /
           absl::ToDoubleSeconds(length);
  }

 private:
  struct Sample {
    absl::Duration time;
    int64_t count = 0;
  };
  std::deque<Sample> samples_;
};

}  // namespace crossmesh
