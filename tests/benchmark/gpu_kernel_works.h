#pragma once

#include "tests/benchmark/gpu_rates.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/device/registered_memory.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Launches of the kernels that are measured: on slices of matrices four times as wide, and from one
// half of the tiles to the other.
class GpuKernelWorks {
 public:
  // Of so many packed bytes, a multiple of 1 MiB; the tiles have four times as many. Both must
  // outlive this.
  static absl::StatusOr<std::unique_ptr<GpuKernelWorks>> Create(Gpu& gpu,
                                                                const MeasuredTiles& tiles,
                                                                int64_t bytes);

  // Valid as long as this is.
  std::vector<MeasuredWork> All();

 private:
  // Boxes, by index into the list on the GPU; the last ones are those of the matrix.
  enum Box : uint8_t { kLongRows, kShortRows, kFirstHalf, kSecondHalf, kQuantized };

  GpuKernelWorks(Gpu& gpu, const MeasuredTiles& tiles, int64_t bytes)
      : gpu_(gpu), tiles_(tiles), bytes_(bytes) {}

  KernelBox Slice(int64_t row_bytes) const;
  ScaledMatrix Matrix() const;
  absl::Status Upload();

  const KernelBox* OnGpu(Box box) const;
  uint64_t* HashesOnGpu() const;
  PackArguments ArgumentsFor(Box box, int64_t bytes) const;
  template <class Arguments>
  absl::Status Launch(absl::string_view kernel, int64_t blocks, const Arguments& arguments);

  absl::StatusOr<double> Pack(Box rows, bool hashed);
  absl::StatusOr<double> Unpack(Box rows, bool hashed);
  absl::StatusOr<double> Scale();
  absl::StatusOr<double> Quantize();
  absl::StatusOr<double> Copy(bool hashed);

  Gpu& gpu_;
  const MeasuredTiles& tiles_;
  const int64_t bytes_;
  std::unique_ptr<GpuMemory> packed_;
  std::unique_ptr<GpuMemory> scales_;
  std::unique_ptr<GpuMemory> factors_;
  std::unique_ptr<GpuMemory> matrix_;  // what is scaled
  std::unique_ptr<GpuMemory> boxes_;
  int32_t quantized_boxes_ = 0;  // from kQuantized on
  // Where the executor has them: those that are sent on the GPU, those that are compared on the
  // host.
  std::unique_ptr<GpuMemory> sent_hashes_;
  std::unique_ptr<RegisteredMemory> own_hashes_;
  std::unique_ptr<RegisteredMemory> root_hashes_;
};

}  // namespace crossmesh
