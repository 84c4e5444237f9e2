#include "worker/gpu/device/ipc_memory.h"

#include "common/base/status_macros.h"

#include <cstring>

#include <absl/memory/memory.h>

namespace crossmesh {

absl::StatusOr<std::unique_ptr<const IpcMemory>> IpcMemory::Open(Gpu& gpu,
                                                                 const IpcHandle& handle) {
  const DriverApi& driver = gpu.driver();
  CUipcMemHandle bytes_of_handle = {};
  std::memcpy(&bytes_of_handle, handle.data(), handle.size());
  CUdeviceptr address = 0;
  RETURN_IF_ERROR(gpu.Check(
      driver.cuIpcOpenMemHandle(&address, bytes_of_handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
      "cuIpcOpenMemHandle"));
  auto memory = absl::WrapUnique(new IpcMemory(gpu, address));
  size_t bytes = 0;
  RETURN_IF_ERROR(
      gpu.Check(driver.cuMemGetAddressRange(nullptr, &bytes, address), "cuMemGetAddressRange"));
  memory->bytes_ = ByteCount(static_cast<int64_t>(bytes));
  return memory;
}

IpcMemory::~IpcMemory() {
  gpu_.LogFailure(gpu_.driver().cuIpcCloseMemHandle(address_), "cuIpcCloseMemHandle");
}

}  // namespace crossmesh
