#include "worker/gpu/device/gpu_memory.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"

#include <algorithm>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Pinned memory of this GPU that can be shared, and registered with a NIC if the GPU can that.
absl::StatusOr<CUmemAllocationProp> PropertiesOn(Gpu& gpu) {
  int rdma_capable = 0;
  RETURN_IF_ERROR(gpu.Check(
      gpu.driver().cuDeviceGetAttribute(
          &rdma_capable, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, gpu.device()),
      "cuDeviceGetAttribute"));
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu.device()};
  properties.allocFlags.gpuDirectRDMACapable = rdma_capable != 0 ? 1 : 0;
  return properties;
}

absl::Status NoMemory(Gpu& gpu, size_t bytes, const absl::Status& status) {
  if (status.code() != absl::StatusCode::kResourceExhausted) return status;
  ASSIGN_OR_RETURN(const Gpu::MemoryAmounts amounts, gpu.Memory());
  return absl::ResourceExhaustedError(absl::StrCat(status.message(), "; expected ", bytes,
                                                   " bytes, ", amounts.free.value(), " of ",
                                                   amounts.total.value(), " are free"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuMemory>> GpuMemory::Create(Gpu& gpu, ByteCount bytes,
                                                             const Options& options) {
  ASSIGN_OR_RETURN(auto memory, Prepare(gpu, bytes));
  RETURN_IF_ERROR(memory->Allocate());
  RETURN_IF_ERROR(memory->Map());
  if (options.zeroed_on == nullptr) return memory;
  RETURN_IF_ERROR(gpu.Check(gpu.driver().cuMemsetD8Async(memory->address_, 0, memory->mapped_bytes_,
                                                         options.zeroed_on->handle()),
                            "cuMemsetD8Async"));
  return memory;
}

absl::StatusOr<std::unique_ptr<GpuMemory>> GpuMemory::Import(Gpu& gpu, int fd, ByteCount bytes) {
  ASSIGN_OR_RETURN(auto memory, Prepare(gpu, bytes));
  // The driver takes the descriptor itself in place of a pointer.
  void* const shared = reinterpret_cast<void*>(intptr_t{fd});
  // Not by the GPU's own check: what another process sent says nothing of this GPU's health.
  absl::Status status =
      gpu.driver().Check(gpu.driver().cuMemImportFromShareableHandle(
                             &memory->handle_, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                         "cuMemImportFromShareableHandle");
  if (status.ok()) status = memory->Map();
  if (status.ok()) return memory;
  return Refusal(gpu, status,
                 absl::StrCat("descriptor ", fd, " is not for ", bytes.value(), " bytes"));
}

absl::StatusOr<std::unique_ptr<GpuMemory>> GpuMemory::Open(Gpu& gpu, absl::string_view ipc_handle,
                                                           ByteCount bytes) {
  if (ipc_handle.size() != sizeof(CUipcMemHandle)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an IPC handle: expected ", sizeof(CUipcMemHandle), " bytes, found ", ipc_handle.size()));
  }
  auto memory = absl::WrapUnique(new GpuMemory(gpu, bytes));
  const absl::Status status = memory->OpenHandle(ipc_handle);
  if (status.ok()) return memory;
  return Refusal(gpu, status, absl::StrCat("the IPC handle is not for ", bytes.value(), " bytes"));
}

absl::Status GpuMemory::OpenHandle(absl::string_view ipc_handle) {
  CUipcMemHandle handle;
  ipc_handle.copy(handle.reserved, sizeof(handle.reserved));
  const DriverApi& driver = gpu_.driver();
  // Not by the GPU's own checks, as in Import.
  RETURN_IF_ERROR(
      driver.Check(driver.cuIpcOpenMemHandle(&address_, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                   "cuIpcOpenMemHandle"));
  is_opened_ = true;
  CUdeviceptr begin = 0;
  size_t size = 0;
  RETURN_IF_ERROR(
      driver.Check(driver.cuMemGetAddressRange(&begin, &size, address_), "cuMemGetAddressRange"));
  const auto left = static_cast<int64_t>(begin + size - address_);
  if (bytes_.value() <= left) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("it is for ", left, " bytes"));
}

absl::Status GpuMemory::Refusal(Gpu& gpu, const absl::Status& status, absl::string_view what) {
  if (!gpu.health().ok() || !absl::IsInternal(status)) return status;
  return absl::InvalidArgumentError(absl::StrCat(what, " of GPU memory: ", status.message()));
}

absl::StatusOr<std::unique_ptr<GpuMemory>> GpuMemory::Prepare(Gpu& gpu, ByteCount bytes) {
  CHECK_GE(bytes.value(), 0);
  auto memory = absl::WrapUnique(new GpuMemory(gpu, bytes));
  ASSIGN_OR_RETURN(memory->properties_, PropertiesOn(gpu));
  size_t granule = 0;
  RETURN_IF_ERROR(gpu.Check(gpu.driver().cuMemGetAllocationGranularity(
                                &granule, &memory->properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                            "cuMemGetAllocationGranularity"));
  // An empty range cannot be mapped.
  const auto wanted = static_cast<size_t>(std::max<int64_t>(bytes.value(), 1));
  memory->mapped_bytes_ = (wanted + granule - 1) / granule * granule;
  return memory;
}

absl::Status GpuMemory::Allocate() {
  const CUresult result =
      gpu_.driver().cuMemCreate(&handle_, mapped_bytes_, &properties_, /*flags=*/0);
  return NoMemory(gpu_, mapped_bytes_, gpu_.Check(result, "cuMemCreate"));
}

absl::Status GpuMemory::Map() {
  const DriverApi& driver = gpu_.driver();
  RETURN_IF_ERROR(gpu_.Check(driver.cuMemAddressReserve(&address_, mapped_bytes_, 0, 0, 0),
                             "cuMemAddressReserve"));
  RETURN_IF_ERROR(gpu_.Check(driver.cuMemMap(address_, mapped_bytes_, 0, handle_, 0), "cuMemMap"));
  is_mapped_ = true;
  const CUmemAccessDesc access = {.location = properties_.location,
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  return gpu_.Check(driver.cuMemSetAccess(address_, mapped_bytes_, &access, 1), "cuMemSetAccess");
}

GpuMemory::~GpuMemory() {
  const DriverApi& driver = gpu_.driver();
  if (is_opened_) {
    gpu_.LogFailure(driver.cuIpcCloseMemHandle(address_), "cuIpcCloseMemHandle");
    return;
  }
  if (is_mapped_) gpu_.LogFailure(driver.cuMemUnmap(address_, mapped_bytes_), "cuMemUnmap");
  if (address_ != 0) {
    gpu_.LogFailure(driver.cuMemAddressFree(address_, mapped_bytes_), "cuMemAddressFree");
  }
  if (handle_ != 0) gpu_.LogFailure(driver.cuMemRelease(handle_), "cuMemRelease");
}

absl::StatusOr<UniqueFd> GpuMemory::ExportFd() const {
  int fd = UniqueFd::kNone;
  RETURN_IF_ERROR(gpu_.Check(gpu_.driver().cuMemExportToShareableHandle(
                                 &fd, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                             "cuMemExportToShareableHandle"));
  return UniqueFd(fd);
}

}  // namespace crossmesh
