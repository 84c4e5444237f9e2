#pragma once

#include "common/base/clock.h"

#include <cstdint>
#include <string>
#include <utility>

#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// How far something is, on standard error: a bar with bytes, rate and time left on a terminal,
// which is drawn over itself; otherwise a line when it starts to take long, and one at its end.
// Thread-compatible.
class Progress {
 public:
  enum class Form { kNone, kLines, kBar };
  // kBar on a terminal, kLines elsewhere, kNone when `quiet`.
  static Form FormFor(bool quiet);

  // `label` names what is done, e.g. "relay"; `total` 0: not known yet.
  Progress(std::string label, int64_t total, Form form, const Clock& clock);
  // Ends the bar's line, if there is one.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // What is counted are these from here on, such as "iterations", and not bytes.
  void CountIn(std::string unit) { unit_ = std::move(unit); }
  // Cheap enough to be called often.
  void Update(int64_t done, absl::string_view state = "");
  void SetTotal(int64_t total) { total_ = total; }
  // Replaces the bar by a last line, such as "relay: 995.5 MB in 0.41 s, 2.4 GB/s".
  void Finish(absl::string_view line);

 private:
  std::string Text(int64_t done, absl::string_view state) const;
  // "12.5 MB 1.2 GB/s", "3 of 10 iterations"
  std::string Amount(int64_t done, double rate) const;

  const std::string label_;
  const Form form_;
  const Clock& clock_;
  const absl::Duration begin_;
  std::string unit_;  // empty: bytes
  int64_t total_;
  absl::Duration shown_;
  bool line_open_ = false;
};

}  // namespace crossmesh
