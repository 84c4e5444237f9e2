#pragma once

#include "worker/gpu/device/gpu.h"

#include <cstdint>
#include <memory>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <cuda.h>

namespace crossmesh {

class GpuEvent;

// Work that a GPU does in order, beside its other streams; the default stream has no part in it.
// Confined to the thread of its Gpu.
class GpuStream {
 public:
  // Which blocks of threads a multiprocessor takes when it has room: those of the greatest priority
  // first. What runs is not interrupted.
  enum class Priority : uint8_t { kLeast, kGreatest };

  // `gpu` must outlive the stream.
  static absl::StatusOr<std::unique_ptr<GpuStream>> Create(Gpu& gpu,
                                                           Priority priority = Priority::kLeast);
  // Does not wait: what is queued still runs.
  ~GpuStream();
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  CUstream handle() const { return handle_; }

  // What is queued from now on begins when the event's last record has happened. It was recorded.
  absl::Status WaitFor(const GpuEvent& event);

 private:
  explicit GpuStream(Gpu& gpu) : gpu_(gpu) {}

  Gpu& gpu_;
  CUstream handle_ = nullptr;
};

}  // namespace crossmesh
