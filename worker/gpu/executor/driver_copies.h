#pragma once

#include "common/mesh/box.h"
#include "worker/gpu/device/device_copy.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace crossmesh {

// When the driver copies a range of a class, and not a kernel. Assumed until measured: a call takes
// the host some microseconds, in which a GPU copies about so many bytes; and the copy engine is at
// its full rate with rows of so many bytes.
struct DriverCopyLimits {
  int64_t bytes_of_copy_min = int64_t{8} << 20;  // on average
  int64_t row_bytes_min = int64_t{16} << 10;     // where there are several
};

// The copies that move bytes of a class from boxes to others that cover them as well, none of them
// converted; nothing where it would take more copies, or shorter rows, than the limits allow. Cost:
// that of the copies that are allowed, and logarithmic in boxes.
//
// Example: bytes [0, 48 MiB) of a class whose source is 3,072 rows of 16 KiB at a distance of
// 64 KiB, and whose destination is one row, are one copy of 3,072 rows.
std::optional<std::vector<DeviceCopy>> DriverCopiesOf(std::span<const KernelBox> sources,
                                                      std::span<const KernelBox> destinations,
                                                      Interval range,
                                                      const DriverCopyLimits& limits = {});

}  // namespace crossmesh
