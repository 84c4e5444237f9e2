#include "worker/gpu/device/gpu_stream.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/gpu/device/gpu_event.h"

#include <absl/memory/memory.h>

namespace crossmesh {

absl::StatusOr<std::unique_ptr<GpuStream>> GpuStream::Create(Gpu& gpu, Priority priority) {
  auto stream = absl::WrapUnique(new GpuStream(gpu));
  // The greatest has the lowest number. Both are 0 where a GPU knows no priorities.
  int least = 0;
  int greatest = 0;
  RETURN_IF_ERROR(gpu.Check(gpu.driver().cuCtxGetStreamPriorityRange(&least, &greatest),
                            "cuCtxGetStreamPriorityRange"));
  RETURN_IF_ERROR(gpu.Check(
      gpu.driver().cuStreamCreateWithPriority(&stream->handle_, CU_STREAM_NON_BLOCKING,
                                              priority == Priority::kGreatest ? greatest : least),
      "cuStreamCreateWithPriority"));
  return stream;
}

GpuStream::~GpuStream() {
  if (handle_ != nullptr)
    gpu_.LogFailure(gpu_.driver().cuStreamDestroy(handle_), "cuStreamDestroy");
}

absl::Status GpuStream::WaitFor(const GpuEvent& event) {
  CHECK(event.is_recorded());
  return gpu_.Check(gpu_.driver().cuStreamWaitEvent(handle_, event.handle(), 0),
                    "cuStreamWaitEvent");
}

}  // namespace crossmesh
