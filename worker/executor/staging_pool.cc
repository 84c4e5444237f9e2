#include "worker/executor/staging_pool.h"

#include "common/base/byte_count.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/memory/arena.h"

#include <algorithm>
#include <utility>

namespace crossmesh {
namespace {

int64_t UnitsFor(int64_t bytes) {
  return std::max<int64_t>(1, (bytes + StagingPool::kUnitBytes - 1) / StagingPool::kUnitBytes);
}

}  // namespace

absl::StatusOr<StagingPool> StagingPool::Create(absl::string_view name, int64_t bytes) {
  ASSIGN_OR_RETURN(auto arena, Arena::Create(name, ByteCount(UnitsFor(bytes) * kUnitBytes)));
  return StagingPool(std::move(arena));
}

StagingPool::StagingPool(std::shared_ptr<Arena> arena)
    : arena_(std::move(arena)), used_(UnitsFor(std::ssize(arena_->bytes())), false) {
  CHECK_EQ(bytes(), std::ssize(arena_->bytes()));
}

std::span<std::byte> StagingPool::memory() const { return arena_->bytes(); }

int StagingPool::fd() const { return arena_->fd(); }

std::optional<std::span<std::byte>> StagingPool::Allocate(int64_t bytes, StagingWaiter& waiter) {
  const int64_t units = UnitsFor(bytes);
  CHECK_LE(units, std::ssize(used_));
  // Only the first in line gets memory: small requests would pass a large one for ever.
  const bool first_in_line = waiters_.empty() || waiters_.front() == &waiter;
  const std::optional<int64_t> begin = first_in_line ? FindFree(units) : std::nullopt;
  if (!begin.has_value()) {
    if (waiter.waits_for_units_ == 0) waiters_.push_back(&waiter);
    waiter.waits_for_units_ = units;
    waiter.was_refused_ = true;
    return std::nullopt;
  }
  Forget(waiter);
  std::fill_n(used_.begin() + *begin, units, true);
  used_units_ += units;
  peak_units_ = std::max(peak_units_, used_units_);
  return arena_->bytes().subspan(*begin * kUnitBytes, bytes);
}

void StagingPool::Release(std::span<std::byte> memory) {
  const int64_t begin = (memory.data() - arena_->bytes().data()) / kUnitBytes;
  const int64_t units = UnitsFor(std::ssize(memory));
  std::fill_n(used_.begin() + begin, units, false);
  used_units_ -= units;
  WakeWaiters();
}

void StagingPool::Forget(StagingWaiter& waiter) {
  if (waiter.waits_for_units_ == 0) return;
  waiter.waits_for_units_ = 0;
  std::erase(waiters_, &waiter);
}

std::optional<int64_t> StagingPool::FindFree(int64_t units) const {
  int64_t found = 0;
  for (int64_t unit = 0; unit < std::ssize(used_); ++unit) {
    found = used_[unit] ? 0 : found + 1;
    if (found == units) return unit + 1 - units;
  }
  return std::nullopt;
}

void StagingPool::WakeWaiters() {
  while (!waiters_.empty()) {
    StagingWaiter& first = *waiters_.front();
    if (!FindFree(first.waits_for_units_).has_value()) return;
    first.was_refused_ = false;
    first.OnStagingFree();
    // One that asked for nothing wants nothing. One that asked for more than before, since it no
    // longer wants what it waited for, goes on waiting.
    if (!first.was_refused_) Forget(first);
  }
}

}  // namespace crossmesh
