#include "tests/standin/driver/call.h"
#include "tests/standin/driver/driver_state.h"
#include "tests/standin/driver/faults.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

enum class Side : uint8_t { kDevice, kHost };

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

// A copy of rows, or with a null source a fill with `value`.
struct Copy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  size_t bytes = 0;  // of a row
  unsigned char value = 0;
  Side to_side = Side::kDevice;
  Side from_side = Side::kDevice;
  size_t rows = 1;
  size_t to_pitch = 0;
  size_t from_pitch = 0;

  std::byte* ToRow(size_t row) const { return to + row * to_pitch; }
  const std::byte* FromRow(size_t row) const { return from + row * from_pitch; }
};

Outcome CheckSides(const Copy& copy) {
  for (size_t row = 0; row < copy.rows; ++row) {
    RETURN_IF_FAILED(CheckSide("destination", copy.ToRow(row), copy.bytes, copy.to_side));
    if (copy.from == nullptr) continue;
    RETURN_IF_FAILED(CheckSide("source", copy.FromRow(row), copy.bytes, copy.from_side));
  }
  return {};
}

void AddUsers(const Copy& copy, int users) {
  for (size_t row = 0; row < copy.rows; ++row) {
    ProcessMemory().AddUsers(copy.ToRow(row), copy.bytes, users);
    if (copy.from != nullptr) ProcessMemory().AddUsers(copy.FromRow(row), copy.bytes, users);
  }
}

void Move(const Copy& copy) {
  for (size_t row = 0; row < copy.rows; ++row) {
    if (copy.from != nullptr) {
      std::memmove(copy.ToRow(row), copy.FromRow(row), copy.bytes);
    } else {
      std::memset(copy.ToRow(row), copy.value, copy.bytes);
    }
  }
}

CUresult Run(const char* name, CUstream handle, const Copy& copy) {
  Call call(name, handle, static_cast<int64_t>(copy.rows * copy.bytes));
  Stream* stream = nullptr;
  END_IF_FAILED(call, Call::NeedStream(handle, stream));
  END_IF_FAILED(call, CheckSides(copy));
  AddUsers(copy, 1);
  const bool is_between_both = (copy.to_side == Side::kHost) != (copy.from_side == Side::kHost);
  const bool corrupts = is_between_both && Faults::OfProcess().Due("corrupt_copy_at");
  stream->Enqueue([copy, corrupts] {
    Move(copy);
    if (corrupts) *copy.to ^= std::byte{1};
    AddUsers(copy, -1);
  });
  return call.End();
}

std::byte* Pointer(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }

// Only what the product asks for: from device to device, from the first byte on.
Outcome CheckRectangle(const CUDA_MEMCPY2D& copy) {
  if (copy.srcMemoryType != CU_MEMORYTYPE_DEVICE || copy.dstMemoryType != CU_MEMORYTYPE_DEVICE ||
      copy.srcXInBytes + copy.srcY + copy.dstXInBytes + copy.dstY != 0) {
    return Violation(CUDA_ERROR_NOT_SUPPORTED, "a copy but of rows of one device's memory");
  }
  constexpr size_t kPitchMax = INT32_MAX;  // CU_DEVICE_ATTRIBUTE_MAX_PITCH
  for (const size_t pitch : {copy.srcPitch, copy.dstPitch}) {
    if (pitch < copy.WidthInBytes || pitch > kPitchMax) {
      return Violation(CUDA_ERROR_INVALID_VALUE,
                       absl::StrCat("rows of ", copy.WidthInBytes, " bytes at a distance of ",
                                    pitch, ", which is at most ", kPitchMax));
    }
  }
  return {};
}

}  // namespace
}  // namespace crossmesh

using crossmesh::Call;
using crossmesh::Pointer;
using crossmesh::Run;
using crossmesh::Side;

extern "C" {

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* copy, CUstream stream) {
  if (const crossmesh::Outcome outcome = crossmesh::CheckRectangle(*copy); !outcome.ok()) {
    return Call("cuMemcpy2DAsync", stream).End(outcome);
  }
  return Run("cuMemcpy2DAsync", stream,
             {.to = Pointer(copy->dstDevice),
              .from = Pointer(copy->srcDevice),
              .bytes = copy->WidthInBytes,
              .rows = copy->Height,
              .to_pitch = copy->dstPitch,
              .from_pitch = copy->srcPitch});
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Run("cuMemcpyDtoDAsync", stream,
             {.to = Pointer(to), .from = Pointer(from), .bytes = bytes});
}

CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Run("cuMemcpyDtoHAsync", stream,
             {.to = static_cast<std::byte*>(to),
              .from = Pointer(from),
              .bytes = bytes,
              .to_side = Side::kHost});
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return Run("cuMemcpyHtoDAsync", stream,
             {.to = Pointer(to),
              .from = static_cast<const std::byte*>(from),
              .bytes = bytes,
              .from_side = Side::kHost});
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  return Run("cuMemsetD8Async", stream, {.to = Pointer(to), .bytes = bytes, .value = value});
}

}  // extern "C"
