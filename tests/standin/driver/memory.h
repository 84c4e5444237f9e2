#pragma once

#include "common/base/mutex.h"
#include "common/base/unique_fd.h"
#include "tests/standin/control/outcome.h"
#include "tests/standin/control/stand_in_control.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include <absl/functional/function_ref.h>
#include <cuda.h>

namespace crossmesh {

// Device memory as files in memory (memfd) that are mapped: what is exported is a descriptor of
// one. Also host memory that was registered. Addresses are the process's own, so a copy is a
// memcpy; nothing that was not set accessible can be touched. Thread-safe.
class Memory {
 public:
  static constexpr size_t kGranularity = size_t{2} << 20;

  // Each device has this much, in each process by itself.
  explicit Memory(int64_t device_bytes) : device_bytes_(device_bytes) {}

  // Memory by address range (VMM).
  Outcome Create(int device, size_t bytes, bool shareable, CUmemGenericAllocationHandle& handle);
  Outcome Import(int fd, CUmemGenericAllocationHandle& handle);
  Outcome Export(CUmemGenericAllocationHandle handle, int& fd);
  Outcome Release(CUmemGenericAllocationHandle handle);
  Outcome Reserve(size_t bytes, size_t alignment, CUdeviceptr& address);
  Outcome FreeReservation(CUdeviceptr address, size_t bytes);
  Outcome Map(CUdeviceptr address, size_t bytes, size_t offset,
              CUmemGenericAllocationHandle handle);
  Outcome Unmap(CUdeviceptr address, size_t bytes);
  Outcome SetAccess(CUdeviceptr address, size_t bytes, std::span<const CUmemAccessDesc> access);

  // Host memory.
  Outcome RegisterHost(const void* address, size_t bytes);
  Outcome UnregisterHost(const void* address);
  bool IsRegisteredHost(const void* address, size_t bytes);

  // A violation, unless all of the range is device memory that can be accessed.
  Outcome CheckDevice(const void* address, size_t bytes);
  StandInMemory KindOf(const void* address, size_t bytes);
  // Of device memory, as after CheckDevice. While there are users or registrations, memory must not
  // be unmapped.
  void AddUsers(const void* address, size_t bytes, int users);
  void AddRegistrations(const void* address, size_t bytes, int registrations);

  int64_t device_bytes() const { return device_bytes_; }
  int64_t TakenBytes(int device);
  // For what is not memory of ours, such as a communicator's. ResourceExhausted's outcome.
  Outcome Take(int device, int64_t bytes);

 private:
  // Physical memory. It goes when the last handle and mapping of it go.
  struct Block {
    ~Block();

    UniqueFd fd;
    size_t bytes = 0;
    int device = -1;
    bool shareable = false;
    Memory* owner = nullptr;  // null when another process made it
  };
  struct Mapping {
    size_t bytes = 0;
    std::shared_ptr<Block> block;
    bool accessible = false;
    int users = 0;
    int registrations = 0;
  };
  using Mappings = std::map<uintptr_t, Mapping>;

  Outcome MakeBlock(int device, size_t bytes, std::shared_ptr<Block>& block);
  Outcome CheckDeviceLocked(uintptr_t begin, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForEachMappingLocked(uintptr_t begin, size_t bytes, absl::FunctionRef<void(Mapping&)> visit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The mapping that contains an address, or the end.
  Mappings::iterator FindLocked(uintptr_t address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Why a mapping must stay; OK when it may go.
  static Outcome CheckUnused(const Mapping& mapping);
  void GiveBack(int device, int64_t bytes);

  const int64_t device_bytes_;

  Mutex mutex_;
  uint64_t next_handle_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<int, int64_t> taken_bytes_ ABSL_GUARDED_BY(mutex_);  // by device
  std::map<CUmemGenericAllocationHandle, std::shared_ptr<Block>> handles_ ABSL_GUARDED_BY(mutex_);
  std::map<uintptr_t, size_t> reservations_ ABSL_GUARDED_BY(mutex_);
  Mappings mappings_ ABSL_GUARDED_BY(mutex_);
  std::map<uintptr_t, size_t> host_ranges_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace crossmesh
