#pragma once

#include "common/base/byte_count.h"
#include "common/base/unique_fd.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_stream.h"

#include <cstddef>
#include <cstdint>
#include <memory>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <cuda.h>

namespace crossmesh {

// Memory of a GPU by address range (VMM), which other processes of the host may have as well: the
// bytes live as long as a descriptor of them is open, or they are mapped. Or memory of cudaMalloc
// of another process, which ends with that process. Confined to the thread of its Gpu.
//
// Giving it back does not wait for work that uses it: the owner lets it go only after the events
// after all such work have happened, or the process has lost the GPU.
class GpuMemory {
 public:
  struct Options {
    // Fills the memory with zeros in this stream; without it the bytes are undefined. Other
    // streams wait for it by an event.
    const GpuStream* zeroed_on = nullptr;
  };

  // ResourceExhausted, with the size and what is free, when memory lacks. `gpu` must outlive the
  // memory.
  static absl::StatusOr<std::unique_ptr<GpuMemory>> Create(Gpu& gpu, ByteCount bytes,
                                                           const Options& options);
  // Maps what another process, or this one, has exported; `bytes` is the size that it was made
  // with. The descriptor stays the caller's, which may close it. InvalidArgument when it is not so
  // much memory of a GPU.
  static absl::StatusOr<std::unique_ptr<GpuMemory>> Import(Gpu& gpu, int fd, ByteCount bytes);

  // Opens memory of cudaMalloc of another process by the bytes of its CUipcMemHandle. A handle that
  // is open already is the same memory at the same address. InvalidArgument when it is not so much
  // memory of this GPU, or there is none any more.
  static absl::StatusOr<std::unique_ptr<GpuMemory>> Open(Gpu& gpu, absl::string_view ipc_handle,
                                                         ByteCount bytes);

  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  // A multiple of what all granularities are.
  uint64_t address() const { return address_; }
  // As asked for; what is mapped is whole granules, usually of 2 MiB.
  ByteCount bytes() const { return bytes_; }

  // A descriptor for Import, of what was not opened. A process that has it has the memory, to read
  // and to write.
  absl::StatusOr<UniqueFd> ExportFd() const;

 private:
  GpuMemory(Gpu& gpu, ByteCount bytes) : gpu_(gpu), bytes_(bytes) {}

  // An empty memory, knowing how much is to be mapped.
  static absl::StatusOr<std::unique_ptr<GpuMemory>> Prepare(Gpu& gpu, ByteCount bytes);
  absl::Status Allocate();
  absl::Status Map();
  absl::Status OpenHandle(absl::string_view ipc_handle);
  // What the driver refuses came from another process, unless the GPU itself has failed.
  static absl::Status Refusal(Gpu& gpu, const absl::Status& status, absl::string_view what);

  Gpu& gpu_;
  const ByteCount bytes_;
  CUmemAllocationProp properties_ = {};
  size_t mapped_bytes_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;  // 0: none
  CUdeviceptr address_ = 0;                  // 0: none reserved
  bool is_mapped_ = false;
  bool is_opened_ = false;  // by a handle
};

}  // namespace crossmesh
