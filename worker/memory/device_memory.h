#pragma once

#include "common/base/mutex.h"
#include "common/base/unique_fd.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Memory of a GPU, made by another process. The arena that stands for it exists here from the
// start, so that no thread has to wait for a GPU. Thread-safe.
class DeviceMemory {
 public:
  // The descriptor by which processes have it, or why it could not be made. None of memory that has
  // no descriptor.
  using Made = absl::StatusOr<UniqueFd>;
  using Waiter = absl::AnyInvocable<void(const Made&)>;

  enum class Kind : uint8_t {
    kOwn,           // of the worker
    kLent,          // an allocation of a user process
    kLentByHandle,  // the same, of cudaMalloc: it has no descriptor
    kBound,         // pieces of what is lent
  };

  // `gpu`: its UUID.
  explicit DeviceMemory(std::string gpu, Kind kind = Kind::kOwn, std::string ipc_handle = {})
      : gpu_(std::move(gpu)), kind_(kind), ipc_handle_(std::move(ipc_handle)) {}

  const std::string& gpu() const { return gpu_; }
  Kind kind() const { return kind_; }
  // By which it was lent; empty: by none.
  const std::string& ipc_handle() const { return ipc_handle_; }
  bool has_descriptor() const { return kind_ == Kind::kOwn || kind_ == Kind::kLent; }
  bool is_lent() const { return kind_ == Kind::kLent || kind_ == Kind::kLentByHandle; }

  // Once.
  void Finish(Made made);
  // Calls `waiter` from Finish, or at once when that was before.
  void WhenMade(Waiter waiter);

  // It was there, and is gone from the GPU because of `why`. The first loss counts.
  void Lose(const absl::Status& why);

  // Whether it is there; the error, once it could not be made or is lost.
  absl::StatusOr<bool> is_made() const;
  // Why it is lost; OK while it is not.
  absl::Status loss() const;

 private:
  const std::string gpu_;
  const Kind kind_;
  const std::string ipc_handle_;
  mutable Mutex mutex_;
  std::optional<const Made> made_ ABSL_GUARDED_BY(mutex_);  // set once
  absl::Status loss_ ABSL_GUARDED_BY(mutex_);
  std::vector<Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
