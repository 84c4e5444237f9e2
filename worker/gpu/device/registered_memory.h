#pragma once

#include "common/base/byte_count.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_stream.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Pages of the host that a GPU reads and writes where they are: for lists of boxes and of hashes,
// which the host makes or looks at, and for memory that another process shares. What the host reads
// of what a kernel wrote is there once an event after the kernel has happened. Confined to the
// thread of its Gpu, but for being made and given back, which takes long where there is much of it
// and may be done on a thread of HostThreads.
//
// Giving it back may wait for the GPU, and work that uses it must have ended.
class RegisteredMemory {
 public:
  // Zero-filled. ResourceExhausted, with the size, when pages lack or may not be pinned. `gpu` must
  // outlive the memory.
  static absl::StatusOr<std::unique_ptr<RegisteredMemory>> Create(Gpu& gpu, ByteCount bytes);
  // Bytes of a file in memory from `offset` on, which is a multiple of the page's size. The
  // descriptor stays the caller's, which may close it. InvalidArgument when the file has fewer;
  // Create for the rest.
  static absl::StatusOr<std::unique_ptr<RegisteredMemory>> Map(Gpu& gpu, int fd, int64_t offset,
                                                               ByteCount bytes);
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  // Where the GPU has the first of them; not always where the host has it.
  uint64_t device_address() const { return device_address_; }

  // Queues a copy of some of these bytes to memory of the GPU, or from there, where kernels read
  // and write much faster. They must stay as they are until it has run.
  absl::Status CopyToGpu(std::span<const std::byte> from, uint64_t to, const GpuStream& stream);
  absl::Status CopyFromGpu(uint64_t from, std::span<std::byte> to, const GpuStream& stream);

 private:
  RegisteredMemory(Gpu& gpu, std::span<std::byte> bytes, size_t mapped_bytes)
      : gpu_(gpu), bytes_(bytes), mapped_bytes_(mapped_bytes) {}

  // Of what mmap gave.
  static absl::StatusOr<std::unique_ptr<RegisteredMemory>> Take(Gpu& gpu, void* pages,
                                                                int64_t bytes, size_t mapped_bytes);
  absl::Status Register();

  Gpu& gpu_;
  const std::span<std::byte> bytes_;
  const size_t mapped_bytes_;
  bool is_registered_ = false;
  uint64_t device_address_ = 0;
};

}  // namespace crossmesh
