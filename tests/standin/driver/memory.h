#pragma once

#include "common/base/mutex.h"
#include "common/base/unique_fd.h"
#include "tests/standin/control/outcome.h"
#include "tests/standin/control/stand_in_control.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include <absl/functional/function_ref.h>
#include <absl/strings/string_view.h>
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

  // Plain memory, and its handles for other processes.
  Outcome Allocate(int device, size_t bytes, CUdeviceptr& address);
  Outcome Free(CUdeviceptr address);
  Outcome GetIpcHandle(CUdeviceptr address, CUipcMemHandle& handle);
  Outcome OpenIpcHandle(int device, const CUipcMemHandle& handle, CUdeviceptr& address);
  Outcome CloseIpcHandle(CUdeviceptr address);
  // Of the allocation, or the mapping, that contains the address.
  Outcome FindExtent(CUdeviceptr address, CUdeviceptr& begin, size_t& bytes);

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
  struct Owner;  // of plain memory
  enum class Kind : uint8_t { kByRange, kPlain, kFromOtherProcess };
  struct Mapping {
    size_t bytes = 0;
    std::shared_ptr<Block> block;
    Kind kind = Kind::kByRange;
    bool accessible = false;
    int users = 0;
    int registrations = 0;
    uint64_t id = 0;  // of plain memory: no other on this machine ever has it
    int opens = 0;    // of a handle
  };
  using Mappings = std::map<uintptr_t, Mapping>;

  // Its file is `extra_bytes` longer than what it counts.
  Outcome MakeBlock(int device, size_t bytes, size_t extra_bytes, std::shared_ptr<Block>& block);
  static Owner& OwnerOf(uintptr_t address, size_t bytes);
  static bool IsFreedByOwner(uintptr_t begin, const Mapping& mapping);
  Outcome CheckDeviceLocked(uintptr_t begin, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForEachMappingLocked(uintptr_t begin, size_t bytes, absl::FunctionRef<void(Mapping&)> visit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The mapping that contains an address, or the end.
  Mappings::iterator FindLocked(uintptr_t address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Why a mapping must stay; OK when it may go.
  static Outcome CheckUnused(const Mapping& mapping);
  // The device of this process that memory of such a file is on, in the life that the device has
  // now; -1: none.
  static int DeviceOf(absl::string_view file_name);
  // The name that the file was made with, from which an importer knows what it is.
  static std::string NameOfFile(int fd);
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
