// ncclMemAlloc is memory by address range, of the current device, that can be shared and
// registered.

#include "common/base/mutex.h"
#include "tests/standin/nccl/nccl_call.h"

#include <map>

#include <absl/strings/str_cat.h>
#include <cuda.h>

namespace crossmesh {
namespace {

struct Allocation {
  CUmemGenericAllocationHandle handle = 0;
  size_t bytes = 0;
};

struct Allocations {
  Mutex mutex;
  std::map<void*, Allocation> by_address ABSL_GUARDED_BY(mutex);
};

// Lives as long as the process, since the calls of a C library have no object.
Allocations& OfProcess() {
  static Allocations& allocations = *new Allocations;
  return allocations;
}

Result FromDriver(CUresult result) {
  if (result == CUDA_SUCCESS) return {};
  const char* text = nullptr;
  cuGetErrorString(result, &text);
  return Failure(ncclUnhandledCudaError, text);
}

Result Allocate(int device, Allocation& allocation, CUdeviceptr& address) {
  const CUmemAllocationProp properties = {
      .type = CU_MEM_ALLOCATION_TYPE_PINNED,
      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
  const CUmemAccessDesc access = {.location = properties.location,
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  RETURN_IF_FAILED(FromDriver(cuMemCreate(&allocation.handle, allocation.bytes, &properties, 0)));
  Result result = FromDriver(cuMemAddressReserve(&address, allocation.bytes, 0, 0, 0));
  if (result.ok()) {
    result = FromDriver(cuMemMap(address, allocation.bytes, 0, allocation.handle, 0));
  }
  if (result.ok()) result = FromDriver(cuMemSetAccess(address, allocation.bytes, &access, 1));
  return result;
}

}  // namespace
}  // namespace crossmesh

using crossmesh::Allocation;
using crossmesh::Allocations;
using crossmesh::FromDriver;
using crossmesh::MutexLock;
using crossmesh::NcclCall;
using crossmesh::Result;
using crossmesh::Violation;

extern "C" {

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  NcclCall call("ncclMemAlloc", nullptr, static_cast<int64_t>(bytes));
  const int device = crossmeshStandInCurrentDevice();
  if (device < 0) {
    return call.End(Violation(ncclInvalidUsage, "this thread has no current context"));
  }
  if (bytes == 0) return call.End(Violation(ncclInvalidArgument, "0 bytes"));
  constexpr size_t kGranularity = size_t{2} << 20;
  Allocation allocation = {.bytes = (bytes + kGranularity - 1) / kGranularity * kGranularity};
  CUdeviceptr address = 0;
  END_IF_FAILED(call, crossmesh::Allocate(device, allocation, address));
  *memory = reinterpret_cast<void*>(address);
  Allocations& allocations = crossmesh::OfProcess();
  MutexLock lock(allocations.mutex);
  allocations.by_address[*memory] = allocation;
  return call.End({});
}

ncclResult_t ncclMemFree(void* memory) {
  NcclCall call("ncclMemFree");
  Allocations& allocations = crossmesh::OfProcess();
  MutexLock lock(allocations.mutex);
  const auto found = allocations.by_address.find(memory);
  if (found == allocations.by_address.end()) {
    return call.End(Violation(ncclInvalidArgument, "no memory of ncclMemAlloc, or freed before"));
  }
  const Allocation allocation = found->second;
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  // Refused while the memory is registered or used.
  END_IF_FAILED(call, FromDriver(cuMemUnmap(address, allocation.bytes)));
  allocations.by_address.erase(found);
  cuMemAddressFree(address, allocation.bytes);
  return call.End(FromDriver(cuMemRelease(allocation.handle)));
}

}  // extern "C"
