#include "worker/gpu/device/device_copy.h"

namespace crossmesh {

absl::Status Queue(Gpu& gpu, const DeviceCopy& copy, const GpuStream& stream) {
  const DriverApi& driver = gpu.driver();
  if (copy.rows == 1) {
    return gpu.Check(driver.cuMemcpyDtoDAsync(copy.to, copy.from, copy.row_bytes, stream.handle()),
                     "cuMemcpyDtoDAsync");
  }
  const CUDA_MEMCPY2D rectangle = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                   .srcDevice = copy.from,
                                   .srcPitch = static_cast<size_t>(copy.from_pitch_bytes),
                                   .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                   .dstDevice = copy.to,
                                   .dstPitch = static_cast<size_t>(copy.to_pitch_bytes),
                                   .WidthInBytes = static_cast<size_t>(copy.row_bytes),
                                   .Height = static_cast<size_t>(copy.rows)};
  return gpu.Check(driver.cuMemcpy2DAsync(&rectangle, stream.handle()), "cuMemcpy2DAsync");
}

}  // namespace crossmesh
