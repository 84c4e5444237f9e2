#pragma once

#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_stream.h"

#include <memory>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <cuda.h>

namespace crossmesh {

// A point in a stream that the host asks about and other streams wait for. Confined to the thread
// of its Gpu.
//
// CUDA takes an event that was never recorded for one that has happened, and so begins work too
// early; therefore that is a CHECK here.
class GpuEvent {
 public:
  // `gpu` must outlive the event.
  static absl::StatusOr<std::unique_ptr<GpuEvent>> Create(Gpu& gpu);
  ~GpuEvent();
  GpuEvent(const GpuEvent&) = delete;
  GpuEvent& operator=(const GpuEvent&) = delete;

  CUevent handle() const { return handle_; }
  bool is_recorded() const { return is_recorded_; }

  // Marks the end of what is queued on the stream. The last record is the one that counts.
  absl::Status Record(const GpuStream& stream);

  // Whether what was queued before the last record is done. Does not wait.
  absl::StatusOr<bool> IsDone();

 private:
  explicit GpuEvent(Gpu& gpu) : gpu_(gpu) {}

  Gpu& gpu_;
  CUevent handle_ = nullptr;
  bool is_recorded_ = false;
};

}  // namespace crossmesh
