// Errors, versions, devices and contexts.

#include "tests/standin/driver/call.h"
#include "tests/standin/driver/driver_state.h"
#include "tests/standin/driver/faults.h"
#include "tests/standin/driver/visible_devices.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Checks that there is such a device.
Outcome NeedDevice(CUdevice device) {
  RETURN_IF_FAILED(Call::NeedDriver());
  if (device >= 0 && device < State().device_count()) return {};
  return Violation(CUDA_ERROR_INVALID_DEVICE, absl::StrCat("no device ", device));
}

// The result that a fault gives a call.
Outcome InjectedResult(const char* fault) {
  const int64_t result = Faults::OfProcess().Value(fault);
  if (result == 0) return {};
  return Failure(static_cast<CUresult>(result), absl::StrCat("injected fault ", fault));
}

std::string DeviceName(int device) { return absl::StrCat(crossmeshStandInName(), " GPU ", device); }

// As of a GPU of compute capability 9.0, where our callers ask.
int AttributeOf(CUdevice_attribute attribute, CUdevice device) {
  // Its PCI address is 0000:NN:00.0.
  if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) return State().NumberOf(device);
  static const std::map<int, int> attributes = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
      {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
  };
  const auto found = attributes.find(attribute);
  return found == attributes.end() ? 0 : found->second;
}

const std::map<CUresult, const char*>& ErrorNames() {
#define CROSSMESH_ERROR(name) {name, #name}
  static const std::map<CUresult, const char*> names = {
      CROSSMESH_ERROR(CUDA_SUCCESS),
      CROSSMESH_ERROR(CUDA_ERROR_ALREADY_MAPPED),
      CROSSMESH_ERROR(CUDA_ERROR_DEINITIALIZED),
      CROSSMESH_ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE),
      CROSSMESH_ERROR(CUDA_ERROR_FILE_NOT_FOUND),
      CROSSMESH_ERROR(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED),
      CROSSMESH_ERROR(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
      CROSSMESH_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS),
      CROSSMESH_ERROR(CUDA_ERROR_ILLEGAL_STATE),
      CROSSMESH_ERROR(CUDA_ERROR_INVALID_CONTEXT),
      CROSSMESH_ERROR(CUDA_ERROR_INVALID_DEVICE),
      CROSSMESH_ERROR(CUDA_ERROR_INVALID_HANDLE),
      CROSSMESH_ERROR(CUDA_ERROR_INVALID_VALUE),
      CROSSMESH_ERROR(CUDA_ERROR_MAP_FAILED),
      CROSSMESH_ERROR(CUDA_ERROR_NOT_FOUND),
      CROSSMESH_ERROR(CUDA_ERROR_NOT_INITIALIZED),
      CROSSMESH_ERROR(CUDA_ERROR_NOT_READY),
      CROSSMESH_ERROR(CUDA_ERROR_NOT_SUPPORTED),
      CROSSMESH_ERROR(CUDA_ERROR_NO_DEVICE),
      CROSSMESH_ERROR(CUDA_ERROR_OPERATING_SYSTEM),
      CROSSMESH_ERROR(CUDA_ERROR_OUT_OF_MEMORY),
      CROSSMESH_ERROR(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND),
      CROSSMESH_ERROR(CUDA_ERROR_SYSTEM_NOT_READY),
      CROSSMESH_ERROR(CUDA_ERROR_UNKNOWN),
  };
#undef CROSSMESH_ERROR
  return names;
}

}  // namespace
}  // namespace crossmesh

using crossmesh::Call;
using crossmesh::Outcome;
using crossmesh::State;

extern "C" {

CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  const auto found = crossmesh::ErrorNames().find(error);
  *text = found == crossmesh::ErrorNames().end() ? nullptr : found->second;
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = Call::LastText(error);
  if (*text == nullptr) *text = crossmeshStandInName();
  return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags) {
  Call call("cuInit");
  if (flags != 0) return call.Refuse(CUDA_ERROR_INVALID_VALUE, "flags must be 0");
  END_IF_FAILED(call, crossmesh::InjectedResult("driver_result"));
  return call.End(State().Initialize());
}

CUresult cuDeviceGetCount(int* count) {
  Call call("cuDeviceGetCount");
  END_IF_FAILED(call, Call::NeedDriver());
  *count = State().device_count();
  return call.End();
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  Call call("cuDeviceGet");
  END_IF_FAILED(call, crossmesh::NeedDevice(ordinal));
  *device = ordinal;
  return call.End();
}

CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  Call call("cuDeviceGetName");
  END_IF_FAILED(call, crossmesh::NeedDevice(device));
  std::snprintf(name, bytes, "%s", crossmesh::DeviceName(device).c_str());
  return call.End();
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  Call call("cuDeviceGetUuid");
  END_IF_FAILED(call, crossmesh::NeedDevice(device));
  *uuid = crossmesh::UuidOfNumber(State().NumberOf(device));
  return call.End();
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  Call call("cuDeviceGetAttribute");
  END_IF_FAILED(call, crossmesh::NeedDevice(device));
  *value = crossmesh::AttributeOf(attribute, device);
  return call.End();
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  Call call("cuDevicePrimaryCtxRetain");
  END_IF_FAILED(call, crossmesh::NeedDevice(device));
  END_IF_FAILED(call, crossmesh::InjectedResult("context_result"));
  *context = State().RetainContext(device);
  return call.End();
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  Call call("cuDevicePrimaryCtxRelease");
  END_IF_FAILED(call, crossmesh::NeedDevice(device));
  return call.End(State().ReleaseContext(device));
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  Call call("cuCtxGetCurrent");
  END_IF_FAILED(call, Call::NeedDriver());
  *context = State().CurrentContext();
  return call.End();
}

CUresult cuCtxSetCurrent(CUcontext context) {
  Call call("cuCtxSetCurrent");
  END_IF_FAILED(call, Call::NeedDriver());
  return call.End(State().SetCurrentContext(context));
}

CUresult cuCtxSynchronize() {
  Call call("cuCtxSynchronize");
  int device = -1;
  END_IF_FAILED(call, Call::NeedContext(device));
  State().SynchronizeDevice(device);
  return call.End(State().CheckContext(device));
}

}  // extern "C"
