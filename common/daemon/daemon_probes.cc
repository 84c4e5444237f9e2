#include "common/daemon/daemon_probes.h"

#include "common/daemon/watchdog.h"

#include <optional>
#include <utility>

namespace crossmesh {

void DaemonProbes::SetWatchdog(const Watchdog* watchdog) {
  const MutexLock lock(mutex_);
  watchdog_ = watchdog;
}

void DaemonProbes::SetServing() {
  const MutexLock lock(mutex_);
  has_started_ = true;
  why_not_serving_.clear();
}

void DaemonProbes::SetNotServing(std::string why) {
  const MutexLock lock(mutex_);
  why_not_serving_ = std::move(why);
}

ProbeAnswer DaemonProbes::Live() const {
  const MutexLock lock(mutex_);
  if (watchdog_ == nullptr) return {.reason = "alive"};
  const std::optional<std::string> silent = watchdog_->WhatIsSilent();
  return silent.has_value() ? ProbeAnswer{.is_good = false, .reason = *silent}
                            : ProbeAnswer{.reason = "alive"};
}

ProbeAnswer DaemonProbes::Ready() const {
  const MutexLock lock(mutex_);
  if (why_not_serving_.empty()) return {.reason = "serves"};
  return {.is_good = false, .reason = why_not_serving_};
}

ProbeAnswer DaemonProbes::Started() const {
  const MutexLock lock(mutex_);
  if (has_started_) return {.reason = "has started"};
  return {.is_good = false, .reason = why_not_serving_};
}

Probes DaemonProbes::All() const {
  return {.live = [this] { return Live(); },
          .ready = [this] { return Ready(); },
          .started = [this] { return Started(); }};
}

}  // namespace crossmesh
