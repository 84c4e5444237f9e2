#pragma once

#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/device/gpu_stream.h"
#include "worker/gpu/device/registered_memory.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Regions of this process's memory that a test fills and looks at, and their images on a GPU, on
// which work is done. Confined to the thread of its Gpu.
class GpuMirror {
 public:
  // For 32 MiB of regions, or a little less. `gpu` must outlive the mirror.
  static absl::StatusOr<std::unique_ptr<GpuMirror>> Create(Gpu& gpu);

  // The region stays where it is until Clear. Its image has the same alignment, up to 256.
  // ResourceExhausted when there is no more room.
  absl::Status Add(std::span<std::byte> region);
  // Forgets all regions.
  void Clear();

  // Where the image of a byte of a region is; 0 for 0. CHECKs that it is of a region.
  uint64_t OnGpu(uint64_t address) const;
  template <typename T>
  T* OnGpu(T* pointer) const {
    return reinterpret_cast<T*>(OnGpu(reinterpret_cast<uint64_t>(pointer)));
  }

  // All regions, one way or the other; waits. Nothing else uses the images meanwhile.
  absl::Status CopyToGpu();
  // DataLoss when the GPU has written between the images.
  absl::Status CopyFromGpu();

 private:
  // Of a region, by its address.
  struct Image {
    size_t bytes = 0;
    size_t offset = 0;  // in both memories
  };

  explicit GpuMirror(Gpu& gpu) : gpu_(gpu) {}

  absl::Status Finish(const absl::Status& queued);
  std::span<std::byte> used() const { return staging_->bytes().first(used_bytes_); }

  Gpu& gpu_;
  std::unique_ptr<GpuStream> stream_;
  std::unique_ptr<RegisteredMemory> staging_;  // as the images are to be, or were
  std::unique_ptr<GpuMemory> images_;
  std::map<uint64_t, Image> regions_;
  size_t used_bytes_ = 0;
};

}  // namespace crossmesh
