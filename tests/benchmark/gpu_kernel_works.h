#pragma once

#include "tests/benchmark/gpu_rates.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/device/registered_memory.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Launches of the kernels that are measured: on slices of matrices four times as wide, and from one
// half of the tiles to the other; large ones, and such as the executor makes for a step.
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
  // Segments of a launch.
  struct Segments {
    int64_t first = 0;  // in the list on the GPU
    int32_t count = 0;
    int64_t blocks = 0;
    int64_t bytes = 0;  // packed
  };
  // A step's chunks.
  struct Chunks {
    int64_t bytes = 0;  // of each
    int64_t count = 0;
  };

  GpuKernelWorks(Gpu& gpu, const MeasuredTiles& tiles, int64_t bytes)
      : gpu_(gpu), tiles_(tiles), bytes_(bytes) {}

  KernelBox Slice(int64_t row_bytes) const;
  ScaledMatrix Matrix() const;
  absl::Status Upload();
  // A segment of one box.
  void AddSegment(Box box, int64_t bytes);
  // Chunks of slices, one after the other; left out where there are not so many bytes.
  void AddChunks(const Chunks& chunks);
  void AddLaunches(std::vector<MeasuredWork>& works);

  const KernelBox* BoxesOnGpu() const;
  uint64_t* HashesOnGpu() const;
  PackArguments ArgumentsFor(const Segments& segments) const;
  template <class Arguments>
  absl::Status Launch(absl::string_view kernel, int64_t blocks, const Arguments& arguments);

  absl::StatusOr<double> Pack(const Segments& segments, bool hashed);
  absl::StatusOr<double> Unpack(const Segments& segments, bool hashed);
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
  std::vector<PackSegment> segments_;
  std::map<Box, Segments> segments_of_box_;
  std::vector<std::pair<Chunks, Segments>> launches_;  // as the executor makes them
  std::unique_ptr<GpuMemory> segments_on_gpu_;
  std::unique_ptr<GpuMemory> copied_;  // the segment of a copy
  // Where the executor has them: those that are sent on the GPU, those that are compared on the
  // host.
  std::unique_ptr<GpuMemory> sent_hashes_;
  std::unique_ptr<RegisteredMemory> own_hashes_;
  std::unique_ptr<RegisteredMemory> root_hashes_;
};

}  // namespace crossmesh
