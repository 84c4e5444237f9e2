#include "client/cli/progress.h"

#include "common/base/byte_count.h"
#include "common/base/format.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kBarInterval = absl::Milliseconds(100);
constexpr absl::Duration kLineInterval = absl::Seconds(2);
constexpr int kBarWidth = 30;
// Back to the start of the line, and clear it.
constexpr const char* kRedraw = "\r\x1b[K";

}  // namespace

Progress::Form Progress::FormFor(bool quiet) {
  if (quiet) return Form::kNone;
  return ::isatty(STDERR_FILENO) != 0 ? Form::kBar : Form::kLines;
}

Progress::Progress(std::string label, int64_t total, Form form, const Clock& clock)
    : label_(std::move(label)),
      form_(form),
      clock_(clock),
      begin_(clock.Monotonic()),
      total_(total),
      shown_(begin_) {}

Progress::~Progress() {
  if (line_open_) std::cerr << kRedraw << std::flush;
}

void Progress::Update(int64_t done, absl::string_view state) {
  if (form_ == Form::kNone) return;
  const absl::Duration now = clock_.Monotonic();
  if (now - shown_ < (form_ == Form::kBar ? kBarInterval : kLineInterval)) return;
  shown_ = now;
  if (form_ == Form::kBar) {
    std::cerr << kRedraw << Text(done, state) << std::flush;
    line_open_ = true;
  } else {
    std::cerr << Text(done, state) << std::endl;
  }
}

void Progress::Finish(absl::string_view line) {
  if (form_ == Form::kNone) return;
  if (line_open_) std::cerr << kRedraw;
  line_open_ = false;
  std::cerr << line << std::endl;
}

std::string Progress::Text(int64_t done, absl::string_view state) const {
  std::string text = absl::StrFormat("%-18s ", label_);
  const double seconds = absl::ToDoubleSeconds(shown_ - begin_);
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  if (total_ > 0) {
    const double part = std::clamp(static_cast<double>(done) / total_, 0.0, 1.0);
    const int filled = static_cast<int>(part * kBarWidth);
    if (form_ == Form::kBar) {
      absl::StrAppend(&text, "[", std::string(filled, '#'), std::string(kBarWidth - filled, ' '),
                      "] ");
    }
    absl::StrAppendFormat(&text, "%3d%% ", static_cast<int>(part * 100));
  }
  absl::StrAppend(&text, Amount(done, rate));
  if (rate > 0 && total_ > done) {
    absl::StrAppend(&text, ", ", FormatSeconds((total_ - done) / rate), " left");
  }
  if (!state.empty()) absl::StrAppend(&text, ", ", state);
  return text;
}

std::string Progress::Amount(int64_t done, double rate) const {
  if (unit_.empty()) return absl::StrCat(FormatBytes(ByteCount(done)), " ", FormatRate(rate));
  if (total_ == 0) return absl::StrCat(done, " ", unit_);
  return absl::StrCat(done, " of ", total_, " ", unit_);
}

}  // namespace crossmesh
