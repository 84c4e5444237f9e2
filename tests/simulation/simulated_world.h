#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// Everything that happens, in the order of simulated time: steps at the same moment come in the
// order in which they were asked for. All randomness is of one seed. Thread-compatible.
class SimulatedWorld {
 public:
  using Step = std::function<void()>;

  // With `keeps_log` all that happens is written down, else only its digest is kept.
  SimulatedWorld(uint64_t seed, bool keeps_log) : random_(seed), keeps_log_(keeps_log) {}

  absl::Duration now() const { return now_; }
  void After(absl::Duration delay, Step step);
  // Does the next step; false when there is none up to `end`, at which the time then is.
  bool StepUntil(absl::Duration end);

  // From 0 to below 1.
  double Chance();
  bool Happens(double probability) { return probability > 0 && Chance() < probability; }
  absl::Duration Between(absl::Duration least, absl::Duration most);
  // From 0 to below `count`.
  int Pick(int count) { return static_cast<int>(Chance() * count); }

  bool keeps_log() const { return keeps_log_; }
  void Log(absl::string_view who, absl::string_view what, absl::string_view of = {});
  const std::string& log() const { return log_; }
  // Of all that was logged, whether it is kept or not.
  uint64_t digest() const { return digest_; }
  int64_t steps() const { return steps_done_; }

 private:
  // Small, as it is moved often; its step stays where it is.
  struct Entry {
    int64_t at_ns = 0;
    int64_t number = 0;
    size_t step = 0;
  };
  static bool IsLater(const Entry& a, const Entry& b) {
    return a.at_ns != b.at_ns ? a.at_ns > b.at_ns : a.number > b.number;
  }

  void SetNow(int64_t now_ns) {
    now_ns_ = now_ns;
    now_ = absl::Nanoseconds(now_ns);
  }

  std::mt19937_64 random_;
  const bool keeps_log_;
  std::vector<Entry> heap_;
  std::vector<Step> steps_;
  std::vector<size_t> free_;  // places in them
  int64_t now_ns_ = 0;
  absl::Duration now_;
  int64_t asked_ = 0;
  int64_t steps_done_ = 0;
  std::string log_;
  uint64_t digest_ = 0xcbf29ce484222325;  // FNV-1a
};

}  // namespace crossmesh
