#include "tests/standin/driver/call.h"
#include "tests/standin/driver/driver_state.h"
#include "tests/standin/driver/faults.h"

#include <cstring>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

enum class Side : uint8_t { kDevice, kHost };

Memory& ProcessMemory() { return DriverState::OfProcess().memory; }

// Host memory must be registered: a copy of other memory is not asynchronous.
Outcome CheckSide(const char* what, const void* address, size_t bytes, Side side) {
  if (side == Side::kHost) {
    if (ProcessMemory().IsRegisteredHost(address, bytes)) return {};
    return Violation(
        CUDA_ERROR_INVALID_VALUE,
        absl::StrCat("the ", what,
                     " is host memory that is not registered, so the copy would not be "
                     "asynchronous"));
  }
  Outcome outcome = ProcessMemory().CheckDevice(address, bytes);
  if (!outcome.ok()) outcome.text = absl::StrCat("the ", what, ": ", outcome.text);
  return outcome;
}

// A copy, or with a null source a fill with `value`.
struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  size_t bytes = 0;
  unsigned char value = 0;
  Side to_side = Side::kDevice;
  Side from_side = Side::kDevice;
};

CUresult Run(const char* name, CUstream handle, const Copy& copy) {
  Call call(name, handle, static_cast<int64_t>(copy.bytes));
  Stream* stream = nullptr;
  END_IF_FAILED(call, Call::NeedStream(handle, stream));
  END_IF_FAILED(call, CheckSide("destination", copy.to, copy.bytes, copy.to_side));
  if (copy.from != nullptr) {
    END_IF_FAILED(call, CheckSide("source", copy.from, copy.bytes, copy.from_side));
  }
  Memory& memory = ProcessMemory();
  const auto add_users = [&memory, copy](int users) {
    memory.AddUsers(copy.to, copy.bytes, users);
    if (copy.from != nullptr) memory.AddUsers(copy.from, copy.bytes, users);
  };
  add_users(1);
  const bool is_between_both = (copy.to_side == Side::kHost) != (copy.from_side == Side::kHost);
  const bool corrupts = is_between_both && Faults::OfProcess().Due("corrupt_copy_at");
  stream->Enqueue([add_users, copy, corrupts] {
    if (copy.from != nullptr) {
      std::memmove(copy.to, copy.from, copy.bytes);
      if (corrupts) *static_cast<unsigned char*>(copy.to) ^= 1;
    } else {
      std::memset(copy.to, copy.value, copy.bytes);
    }
    add_users(-1);
  });
  return call.End();
}

void* Pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

}  // namespace
}  // namespace crossmesh

using crossmesh::Pointer;
using crossmesh::Run;
using crossmesh::Side;

extern "C" {

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Run("cuMemcpyDtoDAsync", stream,
             {.to = Pointer(to), .from = Pointer(from), .bytes = bytes});
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Run("cuMemcpyDtoHAsync", stream,
             {.to = to, .from = Pointer(from), .bytes = bytes, .to_side = Side::kHost});
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return Run("cuMemcpyHtoDAsync", stream,
             {.to = Pointer(to), .from = from, .bytes = bytes, .from_side = Side::kHost});
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  return Run("cuMemsetD8Async", stream, {.to = Pointer(to), .bytes = bytes, .value = value});
}

}  // extern "C"
