#include "common/daemon/watchdog.h"

#include "common/base/format.h"

#include <absl/strings/str_cat.h>

namespace crossmesh {

void Watchdog::Watch(std::string what, Ask ask) {
  const MutexLock lock(mutex_);
  watched_.push_back({.what = std::move(what),
                      .ask = std::move(ask),
                      .answered = std::make_shared<std::atomic<bool>>(true)});
}

void Watchdog::Start() {
  thread_ = Thread("watchdog", [this] { Run(); });
}

void Watchdog::Forget() {
  const MutexLock asking(asking_);
  const MutexLock lock(mutex_);
  watched_.clear();
}

void Watchdog::Stop() {
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
    changed_.SignalAll();
  }
  thread_.Join();
}

void Watchdog::Run() {
  while (true) {
    Look();
    const MutexLock lock(mutex_);
    if (!is_stopping_) changed_.WaitFor(mutex_, options_.every);
    if (is_stopping_) return;
  }
}

void Watchdog::Look() {
  const MutexLock asking(asking_);
  std::vector<std::function<void()>> questions;
  std::optional<std::string> silent;
  bool is_alive = false;
  {
    const MutexLock lock(mutex_);
    for (Watched& watched : watched_) {
      if (!watched.answered->load()) {
        ++watched.silent_looks;
        continue;
      }
      watched.silent_looks = 0;
      watched.answered->store(false);
      questions.emplace_back([ask = watched.ask, answered = watched.answered] {
        ask([answered] { answered->store(true); });
      });
    }
    is_alive = !SilentFor(options_.live_max).has_value();
    silent = SilentFor(options_.silent_max);
    if (silent.has_value() && std::exchange(has_told_, true)) silent.reset();
  }
  for (const auto& question : questions) question();
  if (is_alive && options_.on_alive) options_.on_alive();
  if (silent.has_value() && options_.on_silent) options_.on_silent(*silent);
}

std::optional<std::string> Watchdog::SilentFor(absl::Duration least) const {
  for (const Watched& watched : watched_) {
    const absl::Duration silent = watched.silent_looks * options_.every;
    if (silent < least) continue;
    return absl::StrCat(watched.what, ": silent for ",
                        FormatSeconds(absl::ToDoubleSeconds(silent)));
  }
  return std::nullopt;
}

std::optional<std::string> Watchdog::WhatIsSilent() const {
  const MutexLock lock(mutex_);
  return SilentFor(options_.live_max);
}

}  // namespace crossmesh
