#pragma once

#include <cstdint>

#include <absl/strings/string_view.h>

namespace crossmesh {

// A kind of GPU, with its maker's rates, per direction: assumed until they are measured.
struct GpuModel {
  absl::string_view name;               // which the driver's name of such a GPU contains
  int nvlinks = 0;                      // 0: it has no NVLink
  int64_t nvlink_bytes_per_second = 0;  // of all of them
  int64_t memory_bytes_per_second = 0;  // read or written

  // What kernels reach of the memory's rate when they copy, so that it is read and written.
  int64_t copy_bytes_per_second() const;
  // By so many of its NVLinks.
  int64_t LinkBytesPerSecond(int links) const;
};

// What a driver's name stands for, e.g. "NVIDIA H100 80GB HBM3". Null: not known here.
const GpuModel* FindGpuModel(absl::string_view driver_name);

}  // namespace crossmesh
