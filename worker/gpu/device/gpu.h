#pragma once

#include "common/base/byte_count.h"
#include "worker/gpu/kernels/kernel_arguments.h"
#include "worker/gpu/libraries/driver_api.h"

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <cuda.h>

namespace crossmesh {

class GpuStream;

// A function that a GPU has loaded.
struct GpuFunction {
  CUfunction function = nullptr;
  int32_t threads = 0;  // of a block
};

// A kernel that takes one Arguments. Valid as long as its Gpu. Immutable.
template <class Arguments>
class GpuKernel {
 private:
  friend class Gpu;
  explicit GpuKernel(const GpuFunction& function) : function_(function) {}

  GpuFunction function_;
};

// One GPU: its primary context, which NCCL uses as well, and the kernels. Streams, events and
// memory of a GPU go before it. Confined to the thread that made it, but for what is said to be
// thread-safe; the context is current there until the Gpu goes, and then none is.
//
// No call here or in what belongs to a Gpu waits for work on it, but for SynchronizeForShutdown;
// giving memory back may, as each class says.
class Gpu {
 public:
  struct MemoryAmounts {
    ByteCount free;
    ByteCount total;
  };

  // The GPUs that the driver shows to this process, in its order, each as nvidia-smi prints it:
  // "GPU-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"; "GPU-" also for a MIG instance, since the driver
  // does not tell which it is. NotFound when there is none.
  static absl::StatusOr<std::vector<std::string>> Uuids(const DriverApi& driver);

  // `uuid` is one of these, or the same with "MIG-"; NotFound names them. `driver` must outlive the
  // GPU. FailedPrecondition when the GPU cannot run our kernels; ResourceExhausted without memory
  // for a context. Takes seconds where the context is not there yet.
  static absl::StatusOr<std::unique_ptr<Gpu>> Create(const DriverApi& driver,
                                                     const std::string& uuid);
  // What was queued must have ended.
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const DriverApi& driver() const { return driver_; }
  const std::string& uuid() const { return uuid_; }
  CUdevice device() const { return device_; }

  // "0000:4b:00.0"; errors of the driver.
  absl::StatusOr<std::string> PciAddress();

  // OK, or the error after which this process can do nothing more with the GPU: a kernel that
  // touched memory which is not there, hardware that failed. From then on each call gives it.
  // Thread-safe.
  absl::Status health() const;

  // Makes the context current on a thread beside the Gpu's own, for what can be done there
  // (HostThreads). Thread-safe.
  absl::Status MakeCurrent();

  // Memory of the whole GPU, of all its processes.
  absl::StatusOr<MemoryAmounts> Memory();

  // By its name in kernel_table.h. CHECKs that it is there and takes Arguments. Logarithmic.
  template <class Arguments>
  GpuKernel<Arguments> KernelNamed(absl::string_view name) const {
    return GpuKernel<Arguments>(FunctionNamed(name, Arguments::kParameter));
  }

  // Queues `blocks` (at least 1) blocks of threads. What the arguments point to must stay until
  // they have run.
  template <class Arguments>
  absl::Status Launch(const GpuKernel<Arguments>& kernel, int64_t blocks,
                      const Arguments& arguments, const GpuStream& stream) {
    static_assert(std::is_trivially_copyable_v<Arguments>);
    return LaunchFunction(kernel.function_, blocks, &arguments, stream);
  }

  // Waits until everything that this process has queued has ended, NCCL's work too. Never where a
  // peer may keep a kernel of NCCL from ending.
  absl::Status SynchronizeForShutdown();

  // For what belongs to a GPU. As DriverApi::Check, with the GPU's name; keeps health().
  // Thread-safe.
  absl::Status Check(CUresult result, absl::string_view call);
  // For destructors, which cannot return it: logs an error, unless the GPU's health is gone.
  // Thread-safe.
  void LogFailure(CUresult result, absl::string_view call);

 private:
  struct Health;

  Gpu(const DriverApi& driver, std::string uuid, CUdevice device);

  absl::Status RetainContext();
  absl::Status LoadKernels();
  const GpuFunction& FunctionNamed(absl::string_view name, KernelParameter parameter) const;
  absl::Status LaunchFunction(const GpuFunction& function, int64_t blocks, const void* arguments,
                              const GpuStream& stream);

  const DriverApi& driver_;
  const std::string uuid_;
  const CUdevice device_;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  std::vector<GpuFunction> functions_;  // as Kernels()
  const std::unique_ptr<Health> health_;
};

}  // namespace crossmesh
