#include "tests/simulation/simulated_world.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_format.h>

namespace crossmesh {

void SimulatedWorld::After(absl::Duration delay, Step step) {
  const int64_t ns = std::max<int64_t>(absl::ToInt64Nanoseconds(delay), 0);
  if (free_.empty()) {
    free_.push_back(steps_.size());
    steps_.emplace_back();
  }
  steps_[free_.back()] = std::move(step);
  heap_.push_back({now_ns_ + ns, ++asked_, free_.back()});
  free_.pop_back();
  std::ranges::push_heap(heap_, IsLater);
}

bool SimulatedWorld::StepUntil(absl::Duration end) {
  const int64_t end_ns = absl::ToInt64Nanoseconds(end);
  if (heap_.empty() || heap_.front().at_ns > end_ns) {
    SetNow(std::max(now_ns_, end_ns));
    return false;
  }
  std::ranges::pop_heap(heap_, IsLater);
  const Entry entry = heap_.back();
  heap_.pop_back();
  const Step step = std::move(steps_[entry.step]);
  free_.push_back(entry.step);
  SetNow(entry.at_ns);
  ++steps_done_;
  step();
  return true;
}

double SimulatedWorld::Chance() {
  // Not std::uniform_real_distribution, whose numbers are the library's own choice.
  return static_cast<double>(random_() >> 11) * 0x1p-53;
}

absl::Duration SimulatedWorld::Between(absl::Duration least, absl::Duration most) {
  return absl::Trunc(least + (most - least) * Chance(), absl::Nanoseconds(1));
}

void SimulatedWorld::Log(absl::string_view who, absl::string_view what, absl::string_view of) {
  const auto add = [this](const void* bytes, size_t size) {
    for (size_t i = 0; i < size; ++i) {
      digest_ = (digest_ ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3;
    }
  };
  add(&now_ns_, sizeof(now_ns_));
  for (const absl::string_view text : {who, what, of}) add(text.data(), text.size());
  if (!keeps_log_) return;
  absl::StrAppendFormat(&log_, "%12.6f %s: %s %s\n", static_cast<double>(now_ns_) * 1e-9, who, what,
                        of);
}

}  // namespace crossmesh
