#include "worker/memory/device_memory.h"

#include "common/base/check.h"

#include <utility>

namespace crossmesh {

void DeviceMemory::Finish(Made made) {
  const Made* outcome = nullptr;
  std::vector<Waiter> waiters;
  {
    MutexLock lock(mutex_);
    CHECK(!made_.has_value());
    outcome = &made_.emplace(std::move(made));
    waiters = std::exchange(waiters_, {});
  }
  // Without the lock; the outcome never changes again.
  for (Waiter& waiter : waiters) waiter(*outcome);
}

void DeviceMemory::WhenMade(Waiter waiter) {
  const Made* outcome = nullptr;
  {
    MutexLock lock(mutex_);
    if (!made_.has_value()) {
      waiters_.push_back(std::move(waiter));
      return;
    }
    outcome = &*made_;
  }
  waiter(*outcome);
}

void DeviceMemory::Lose(const absl::Status& why) {
  MutexLock lock(mutex_);
  loss_.Update(why);
}

absl::StatusOr<bool> DeviceMemory::is_made() const {
  MutexLock lock(mutex_);
  if (!loss_.ok()) return loss_;
  if (!made_.has_value()) return false;
  if (!made_->ok()) return made_->status();
  return true;
}

absl::Status DeviceMemory::loss() const {
  MutexLock lock(mutex_);
  return loss_;
}

}  // namespace crossmesh
