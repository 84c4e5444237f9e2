#include "tests/standin/driver/call.h"
#include "tests/standin/driver/driver_state.h"

#include <span>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

Outcome CheckProperties(const CUmemAllocationProp& properties) {
  if (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE || properties.location.id < 0 ||
      properties.location.id >= DriverState::OfProcess().device_count()) {
    return Violation(CUDA_ERROR_INVALID_VALUE, "not pinned memory of a device that there is");
  }
  if (properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
      properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return Violation(CUDA_ERROR_NOT_SUPPORTED, "memory is shared by file descriptors only");
  }
  return {};
}

}  // namespace
}  // namespace crossmesh

using crossmesh::Call;
using crossmesh::DriverState;
using crossmesh::Memory;
using crossmesh::Outcome;
using crossmesh::ProcessMemory;

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  Call call("cuMemGetAllocationGranularity");
  *bytes = Memory::kGranularity;
  return call.End(crossmesh::CheckProperties(*properties));
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long) {
  Call call("cuMemCreate", nullptr, static_cast<int64_t>(bytes));
  END_IF_FAILED(call, Call::NeedDriver());
  END_IF_FAILED(call, crossmesh::CheckProperties(*properties));
  return call.End(ProcessMemory().Create(properties->location.id, bytes,
                                         properties->requestedHandleTypes != 0, *handle));
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  Call call("cuMemRelease");
  return call.End(ProcessMemory().Release(handle));
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long) {
  Call call("cuMemExportToShareableHandle");
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return call.Refuse(CUDA_ERROR_NOT_SUPPORTED, "memory is shared by file descriptors only");
  }
  return call.End(ProcessMemory().Export(handle, *static_cast<int*>(shareable)));
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType type) {
  Call call("cuMemImportFromShareableHandle");
  END_IF_FAILED(call, Call::NeedDriver());
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return call.Refuse(CUDA_ERROR_NOT_SUPPORTED, "memory is shared by file descriptors only");
  }
  // The descriptor itself is passed as if it were a pointer.
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(shareable));
  return call.End(ProcessMemory().Import(fd, *handle));
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long) {
  Call call("cuMemAddressReserve", nullptr, static_cast<int64_t>(bytes));
  END_IF_FAILED(call, Call::NeedDriver());
  return call.End(ProcessMemory().Reserve(bytes, alignment, *address));
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  Call call("cuMemAddressFree", nullptr, static_cast<int64_t>(bytes));
  return call.End(ProcessMemory().FreeReservation(address, bytes));
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  Call call("cuMemMap", nullptr, static_cast<int64_t>(bytes));
  return call.End(ProcessMemory().Map(address, bytes, offset, handle));
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  Call call("cuMemUnmap", nullptr, static_cast<int64_t>(bytes));
  return call.End(ProcessMemory().Unmap(address, bytes));
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
                        size_t count) {
  Call call("cuMemSetAccess", nullptr, static_cast<int64_t>(bytes));
  return call.End(ProcessMemory().SetAccess(address, bytes, std::span(access, count)));
}

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  Call call("cuMemAlloc", nullptr, static_cast<int64_t>(bytes));
  int device = -1;
  END_IF_FAILED(call, Call::NeedContext(device));
  return call.End(ProcessMemory().Allocate(device, bytes, *address));
}

CUresult cuMemFree(CUdeviceptr address) {
  Call call("cuMemFree");
  int device = -1;
  END_IF_FAILED(call, Call::NeedContext(device));
  DriverState::OfProcess().SynchronizeDevice(device);
  return call.End(ProcessMemory().Free(address));
}

CUresult cuMemGetAddressRange(CUdeviceptr* begin, size_t* bytes, CUdeviceptr address) {
  Call call("cuMemGetAddressRange");
  return call.End(ProcessMemory().FindExtent(address, *begin, *bytes));
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  Call call("cuIpcGetMemHandle");
  return call.End(ProcessMemory().GetIpcHandle(address, *handle));
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned int flags) {
  Call call("cuIpcOpenMemHandle");
  int device = -1;
  END_IF_FAILED(call, Call::NeedContext(device));
  if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
    return call.Refuse(CUDA_ERROR_INVALID_VALUE, "flags must be LAZY_ENABLE_PEER_ACCESS");
  }
  return call.End(ProcessMemory().OpenIpcHandle(device, handle, *address));
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  Call call("cuIpcCloseMemHandle");
  return call.End(ProcessMemory().CloseIpcHandle(address));
}

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  Call call("cuMemGetInfo");
  int device = -1;
  END_IF_FAILED(call, Call::NeedContext(device));
  *total = ProcessMemory().device_bytes();
  *free = *total - ProcessMemory().TakenBytes(device);
  return call.End();
}

CUresult cuMemHostRegister(void* address, size_t bytes, unsigned int) {
  Call call("cuMemHostRegister", nullptr, static_cast<int64_t>(bytes));
  int device = -1;
  END_IF_FAILED(call, Call::NeedContext(device));
  return call.End(ProcessMemory().RegisterHost(address, bytes));
}

CUresult cuMemHostUnregister(void* address) {
  Call call("cuMemHostUnregister");
  return call.End(ProcessMemory().UnregisterHost(address));
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* device_address, void* address, unsigned int) {
  Call call("cuMemHostGetDevicePointer");
  if (!ProcessMemory().IsRegisteredHost(address, 1)) {
    return call.Refuse(CUDA_ERROR_INVALID_VALUE, "host memory that is not registered");
  }
  *device_address = reinterpret_cast<CUdeviceptr>(address);
  return call.End();
}

}  // extern "C"
