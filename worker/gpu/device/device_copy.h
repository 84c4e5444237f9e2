#pragma once

#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_stream.h"

#include <cstdint>

#include <absl/status/status.h>

namespace crossmesh {

// Rows of a GPU's memory to be copied to others of the same GPU, which do not overlap them. The
// driver copies them, by what it knows to be fastest.
struct DeviceCopy {
  // Of a pitch: what the driver takes on every GPU (CU_DEVICE_ATTRIBUTE_MAX_PITCH).
  static constexpr int64_t kPitchBytesMax = INT32_MAX;

  uint64_t from = 0;
  uint64_t to = 0;
  int64_t row_bytes = 0;
  int64_t rows = 1;
  // From one row to the next, where there are several: at least row_bytes.
  int64_t from_pitch_bytes = 0;
  int64_t to_pitch_bytes = 0;

  int64_t bytes() const { return rows * row_bytes; }
  friend bool operator==(const DeviceCopy&, const DeviceCopy&) = default;
};

// Queues it, as one call of the driver. Errors of the driver.
absl::Status Queue(Gpu& gpu, const DeviceCopy& copy, const GpuStream& stream);

}  // namespace crossmesh
