#include "worker/gpu/device/gpu.h"

#include "common/base/check.h"
#include "common/base/error_place.h"
#include "common/base/log.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "worker/gpu/device/gpu_stream.h"
#include "worker/gpu/kernels/kernel.h"
#include "worker/gpu/kernels/kernel_image.h"

#include <algorithm>
#include <span>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <absl/strings/strip.h>

namespace crossmesh {
namespace {

std::string TextOf(const CUuuid& uuid) {
  const std::string hex = absl::BytesToHexString(absl::string_view(uuid.bytes, sizeof(uuid.bytes)));
  const absl::string_view digits = hex;
  return absl::StrCat("GPU-", digits.substr(0, 8), "-", digits.substr(8, 4), "-",
                      digits.substr(12, 4), "-", digits.substr(16, 4), "-", digits.substr(20));
}

absl::string_view WithoutKind(absl::string_view uuid) {
  if (!absl::ConsumePrefix(&uuid, "GPU-")) absl::ConsumePrefix(&uuid, "MIG-");
  return uuid;
}

// Errors of work on the GPU, not of a call: cuda.h says that the process must be ended after them,
// or that hardware has failed. The last two are what is left to say of a GPU that fell off the bus.
bool EndsContext(CUresult result) {
  switch (static_cast<int>(result)) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::StatusOr<std::vector<std::string>> Gpu::Uuids(const DriverApi& driver) {
  RETURN_IF_ERROR(driver.Check(driver.cuInit(0), "cuInit"));
  int count = 0;
  RETURN_IF_ERROR(driver.Check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount"));
  std::vector<std::string> uuids;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    CUuuid uuid = {};
    RETURN_IF_ERROR(driver.Check(driver.cuDeviceGet(&device, ordinal), "cuDeviceGet"));
    RETURN_IF_ERROR(driver.Check(driver.cuDeviceGetUuid(&uuid, device), "cuDeviceGetUuid"));
    uuids.push_back(TextOf(uuid));
  }
  return uuids;
}

absl::StatusOr<std::unique_ptr<Gpu>> Gpu::Create(const DriverApi& driver, const std::string& uuid) {
  ASSIGN_OR_RETURN(const std::vector<std::string> uuids,
                   At(absl::StrCat("of GPU ", uuid), Uuids(driver)));
  const auto found = std::ranges::find(uuids, WithoutKind(uuid), WithoutKind);
  if (found == uuids.end()) {
    return absl::NotFoundError(
        absl::StrCat("no GPU ", uuid, "; there are ", absl::StrJoin(uuids, ", ")));
  }
  CUdevice device = 0;
  RETURN_IF_ERROR(driver.Check(driver.cuDeviceGet(&device, static_cast<int>(found - uuids.begin())),
                               "cuDeviceGet"));
  auto gpu = absl::WrapUnique(new Gpu(driver, uuid, device));
  RETURN_IF_ERROR(gpu->RetainContext());
  RETURN_IF_ERROR(gpu->MakeCurrent());
  RETURN_IF_ERROR(gpu->LoadKernels());
  return gpu;
}

// All threads of the process that call the driver for it have one.
struct Gpu::Health {
  Mutex mutex;
  absl::Status status ABSL_GUARDED_BY(mutex);
};

Gpu::Gpu(const DriverApi& driver, std::string uuid, CUdevice device)
    : driver_(driver),
      uuid_(std::move(uuid)),
      device_(device),
      health_(std::make_unique<Health>()) {}

Gpu::~Gpu() {
  if (module_ != nullptr) LogFailure(driver_.cuModuleUnload(module_), "cuModuleUnload");
  if (context_ == nullptr) return;
  LogFailure(driver_.cuCtxSetCurrent(nullptr), "cuCtxSetCurrent");
  LogFailure(driver_.cuDevicePrimaryCtxRelease(device_), "cuDevicePrimaryCtxRelease");
}

absl::Status Gpu::RetainContext() {
  return Check(driver_.cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
}

absl::Status Gpu::MakeCurrent() {
  return Check(driver_.cuCtxSetCurrent(context_), "cuCtxSetCurrent");
}

absl::Status Gpu::LoadKernels() {
  RETURN_IF_ERROR(
      Check(driver_.cuModuleLoadData(&module_, KernelImage().data()), "cuModuleLoadData"));
  for (const Kernel& kernel : Kernels()) {
    GpuFunction& loaded = functions_.emplace_back(GpuFunction{.threads = kernel.threads});
    RETURN_IF_ERROR(
        Check(driver_.cuModuleGetFunction(&loaded.function, module_, kernel.name.data()),
              absl::StrCat("cuModuleGetFunction of ", kernel.name)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Gpu::MemoryAmounts> Gpu::Memory() {
  size_t free = 0;
  size_t total = 0;
  RETURN_IF_ERROR(Check(driver_.cuMemGetInfo(&free, &total), "cuMemGetInfo"));
  return MemoryAmounts{.free = ByteCount(static_cast<int64_t>(free)),
                       .total = ByteCount(static_cast<int64_t>(total))};
}

absl::StatusOr<std::string> Gpu::PciAddress() {
  int domain = 0;
  int bus = 0;
  int device = 0;
  for (const auto& [value, attribute] : {std::pair(&domain, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
                                         std::pair(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
                                         std::pair(&device, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)}) {
    RETURN_IF_ERROR(
        Check(driver_.cuDeviceGetAttribute(value, attribute, device_), "cuDeviceGetAttribute"));
  }
  return absl::StrFormat("%04x:%02x:%02x.0", domain, bus, device);
}

const GpuFunction& Gpu::FunctionNamed(absl::string_view name, KernelParameter parameter) const {
  const std::span<const Kernel> kernels = Kernels();
  const auto found = std::ranges::lower_bound(kernels, name, {}, &Kernel::name);
  CHECK(found != kernels.end() && found->name == name) << name << " is no kernel";
  CHECK(found->parameter == parameter) << name << " takes other arguments";
  return functions_[found - kernels.begin()];
}

absl::Status Gpu::LaunchFunction(const GpuFunction& function, int64_t blocks, const void* arguments,
                                 const GpuStream& stream) {
  CHECK_GT(blocks, 0);
  CHECK_LE(blocks, INT32_MAX);
  // The driver copies what it is given, and only wants it without const.
  void* pointers[] = {const_cast<void*>(arguments)};
  return Check(driver_.cuLaunchKernel(function.function, static_cast<unsigned int>(blocks), 1, 1,
                                      static_cast<unsigned int>(function.threads), 1, 1, 0,
                                      stream.handle(), pointers, nullptr),
               "cuLaunchKernel");
}

absl::Status Gpu::SynchronizeForShutdown() {
  return Check(driver_.cuCtxSynchronize(), "cuCtxSynchronize");
}

absl::Status Gpu::health() const {
  MutexLock lock(health_->mutex);
  return health_->status;
}

absl::Status Gpu::Check(CUresult result, absl::string_view call) {
  absl::Status status = At(uuid_, driver_.Check(result, call));
  MutexLock lock(health_->mutex);
  // Calls after such an error fail as well, with results that say less than the first one.
  if (!health_->status.ok()) return health_->status;
  if (EndsContext(result)) health_->status = status;
  return status;
}

void Gpu::LogFailure(CUresult result, absl::string_view call) {
  // All releases would fail, each with an error of its own in the log.
  if (!health().ok()) return;
  const absl::Status status = Check(result, call);
  if (!status.ok()) LogError("gpu_release_failed", {{"error", status.ToString()}});
}

}  // namespace crossmesh
