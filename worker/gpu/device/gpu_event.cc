#include "worker/gpu/device/gpu_event.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"

#include <absl/memory/memory.h>

namespace crossmesh {

absl::StatusOr<std::unique_ptr<GpuEvent>> GpuEvent::Create(Gpu& gpu) {
  auto event = absl::WrapUnique(new GpuEvent(gpu));
  // Without a time, which would cost each record.
  RETURN_IF_ERROR(gpu.Check(gpu.driver().cuEventCreate(&event->handle_, CU_EVENT_DISABLE_TIMING),
                            "cuEventCreate"));
  return event;
}

GpuEvent::~GpuEvent() {
  if (handle_ != nullptr) gpu_.LogFailure(gpu_.driver().cuEventDestroy(handle_), "cuEventDestroy");
}

absl::Status GpuEvent::Record(const GpuStream& stream) {
  RETURN_IF_ERROR(
      gpu_.Check(gpu_.driver().cuEventRecord(handle_, stream.handle()), "cuEventRecord"));
  is_recorded_ = true;
  return absl::OkStatus();
}

absl::StatusOr<bool> GpuEvent::IsDone() {
  CHECK(is_recorded_);
  const CUresult result = gpu_.driver().cuEventQuery(handle_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  RETURN_IF_ERROR(gpu_.Check(result, "cuEventQuery"));
  return true;
}

}  // namespace crossmesh
