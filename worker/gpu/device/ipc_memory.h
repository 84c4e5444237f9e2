#pragma once

#include "common/base/byte_count.h"
#include "worker/gpu/device/gpu.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>
#include <cuda.h>

namespace crossmesh {

// What another process gave for memory of cuMemAlloc or cudaMalloc: a CUipcMemHandle.
using IpcHandle = std::array<std::byte, CU_IPC_HANDLE_SIZE>;

// Memory of another process, opened by its handle: the whole allocation, whatever address in it the
// handle was made from. Unlike GpuMemory it is the other process's: when that frees it or ends,
// what is done here with it is undefined. Confined to the thread of its Gpu.
//
// Closing may wait for the GPU, and work that uses the memory must have ended.
class IpcMemory {
 public:
  // Internal, with the driver's text, when the handle is stale, of another GPU, or of this very
  // process. `gpu` must outlive the memory.
  static absl::StatusOr<std::unique_ptr<const IpcMemory>> Open(Gpu& gpu, const IpcHandle& handle);
  ~IpcMemory();
  IpcMemory(const IpcMemory&) = delete;
  IpcMemory& operator=(const IpcMemory&) = delete;

  uint64_t address() const { return address_; }
  ByteCount bytes() const { return bytes_; }

 private:
  IpcMemory(Gpu& gpu, CUdeviceptr address) : gpu_(gpu), address_(address) {}

  Gpu& gpu_;
  const CUdeviceptr address_;
  ByteCount bytes_;
};

}  // namespace crossmesh
