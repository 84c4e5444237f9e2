#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class Arena;

// What is told when staging memory is free again.
class StagingWaiter {
 public:
  virtual ~StagingWaiter() = default;
  // Allocates what it waited for, or no longer wants it. May not release anything from inside.
  virtual void OnStagingFree() = 0;

 private:
  friend class StagingPool;
  int64_t waits_for_units_ = 0;  // 0: does not wait
  bool was_refused_ = false;     // since it was last told that memory is free
};

// Memory for chunks that are in too many pieces, in units of a leaf. A channel that finds too
// little waits in line, and none overtakes another, so that large chunks get their turn as well.
//
// Sending and receiving each have a pool of their own: what is staged for sending is held until the
// peer has staged it for receiving, so that sharing one pool could make two workers wait for each
// other. Confined to the loop.
class StagingPool {
 public:
  // With an arena of its own of that name: `bytes` in whole units, at least one. What Arena::Create
  // says.
  static absl::StatusOr<StagingPool> Create(absl::string_view name, int64_t bytes);
  // Of whole units.
  explicit StagingPool(std::shared_ptr<Arena> arena);

  int64_t bytes() const { return static_cast<int64_t>(used_.size()) * kUnitBytes; }
  // All of it, and its descriptor.
  std::span<std::byte> memory() const;
  int fd() const;
  int64_t used_bytes() const { return used_units_ * kUnitBytes; }
  // The most that was in use at a time.
  int64_t peak_bytes() const { return peak_units_ * kUnitBytes; }

  // Nothing when `waiter` must wait; it is told later. `bytes` is at most bytes().
  std::optional<std::span<std::byte>> Allocate(int64_t bytes, StagingWaiter& waiter);
  void Release(std::span<std::byte> memory);
  // `waiter` goes away or wants nothing any more.
  void Forget(StagingWaiter& waiter);

  static constexpr int64_t kUnitBytes = int64_t{1} << 16;

 private:
  std::optional<int64_t> FindFree(int64_t units) const;
  void WakeWaiters();

  const std::shared_ptr<Arena> arena_;  // ours alone
  std::vector<bool> used_;              // by unit
  int64_t used_units_ = 0;
  int64_t peak_units_ = 0;
  std::vector<StagingWaiter*> waiters_;  // in line
};

}  // namespace crossmesh
