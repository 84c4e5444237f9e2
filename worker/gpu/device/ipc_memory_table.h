#pragma once

#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/ipc_memory.h"

#include <cstdint>
#include <map>
#include <memory>

#include <absl/status/statusor.h>

namespace crossmesh {

// The memory of other processes that is open, so that each is opened once. Confined to the thread
// of its Gpu, and so is what it gives.
//
// A handle may have the same bytes again after its owner has freed the memory and allocated anew.
// So the owner counts a generation up each time, and here bytes and generation together say which
// memory is meant. CUDA gives the mapping that is open for a handle, new memory or not: therefore
// a newer generation is opened only once the old one is closed, when its last user is gone.
class IpcMemoryTable {
 public:
  // `gpu` must outlive the table and what it gives.
  explicit IpcMemoryTable(Gpu& gpu) : gpu_(gpu) {}

  // The users of the memory own it together; the last one closes it. FailedPrecondition for an
  // older generation than was asked for before; and for a newer one while the older is in use,
  // which nobody new gets then. Errors of IpcMemory::Open.
  absl::StatusOr<std::shared_ptr<const IpcMemory>> Open(const IpcHandle& handle,
                                                        uint64_t generation);

  // Forgets the generations of a handle whose owner has ended. Nobody uses the memory.
  void Forget(const IpcHandle& handle);

 private:
  struct Entry {
    uint64_t generation = 0;         // the newest that was asked for
    uint64_t opened_generation = 0;  // what `memory` is, or was
    std::weak_ptr<const IpcMemory> memory;
  };

  Gpu& gpu_;
  std::map<IpcHandle, Entry> entries_;
};

}  // namespace crossmesh
