#include "tests/standin/driver/journal.h"

#include "common/base/unique_fd.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <fcntl.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr int64_t kCallsKeptMax = int64_t{1} << 20;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// In one write, so that lines of several processes do not mix. An error has no place to be told.
void Append(const std::string& path, absl::string_view text) {
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (file.valid() && write(file.get(), text.data(), text.size()) < 0) return;
}

}  // namespace

int64_t MonotonicNs() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

Journal& Journal::OfProcess() {
  static Journal& journal = *new Journal;
  return journal;
}

Journal::Journal() : report_path_(Environment("CROSSMESH_STANDIN_REPORT")) {}

void Journal::Add(const StandInCall& call) {
  MutexLock lock(mutex_);
  if (static_cast<int64_t>(calls_.size()) >= kCallsKeptMax) {
    calls_.pop_front();
    ++first_call_;
  }
  calls_.push_back(call);
  calls_.back().thread = gettid();
  calls_.back().end_ns = MonotonicNs();
}

int64_t Journal::Read(int64_t first, StandInCall* calls, int64_t max) {
  MutexLock lock(mutex_);
  const auto kept = static_cast<int64_t>(calls_.size());
  const int64_t begin = std::clamp<int64_t>(first - first_call_, 0, kept);
  const int64_t count = kept - begin;
  std::copy_n(calls_.begin() + begin, std::min(count, max), calls);
  return count;
}

void Journal::Violate(std::string text) {
  const std::string line =
      absl::StrCat(crossmeshStandInName(), ", process ", getpid(), ": ", text, "\n");
  MutexLock lock(mutex_);
  violations_.push_back(std::move(text));
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
  if (!report_path_.empty()) Append(report_path_, line);
}

int64_t Journal::violation_count() {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(violations_.size());
}

const char* Journal::violation(int64_t index) {
  MutexLock lock(mutex_);
  if (index < 0 || index >= static_cast<int64_t>(violations_.size())) return nullptr;
  return violations_[index].c_str();
}

}  // namespace crossmesh
