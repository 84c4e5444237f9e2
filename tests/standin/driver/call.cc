#include "tests/standin/driver/call.h"

#include "tests/standin/driver/driver_state.h"
#include "tests/standin/driver/journal.h"

#include <string>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

struct LastError {
  CUresult result = CUDA_SUCCESS;
  std::string text;
};
thread_local LastError last_error;

}  // namespace

Call::Call(const char* name, CUstream stream, int64_t bytes)
    : log_{.name = name, .stream = stream, .bytes = bytes, .start_ns = MonotonicNs()} {}

Call::~Call() { Journal::OfProcess().Add(log_); }

CUresult Call::End(const Outcome& outcome) {
  log_.result = outcome.code;
  if (outcome.ok() || outcome.code == CUDA_ERROR_NOT_READY) return outcome.code;
  last_error = {outcome.code,
                absl::StrCat(crossmeshStandInName(), ": ", log_.name, ": ", outcome.text)};
  if (outcome.is_violation) {
    Journal::OfProcess().Violate(absl::StrCat(log_.name, ": ", outcome.text));
  }
  return outcome.code;
}

Outcome Call::NeedDriver() {
  if (DriverState::OfProcess().initialized()) return {};
  return Violation(CUDA_ERROR_NOT_INITIALIZED, "cuInit has not been called");
}

Outcome Call::NeedContext(int& device) {
  RETURN_IF_FAILED(NeedDriver());
  device = DriverState::OfProcess().CurrentDevice();
  if (device >= 0) return DriverState::OfProcess().CheckContext(device);
  return Violation(CUDA_ERROR_INVALID_CONTEXT, "this thread has no current context");
}

Outcome Call::NeedStream(CUstream handle, Stream*& stream) {
  int device = -1;
  RETURN_IF_FAILED(NeedContext(device));
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    return Violation(CUDA_ERROR_INVALID_HANDLE,
                     "a default stream, which waits for all others; make one");
  }
  stream = DriverState::OfProcess().streams.Find(handle);
  if (stream == nullptr) {
    return Violation(CUDA_ERROR_INVALID_HANDLE, "no such stream, or one that was destroyed");
  }
  if (stream->device() != device) {
    return Violation(CUDA_ERROR_INVALID_HANDLE,
                     absl::StrCat("the stream is of device ", stream->device(),
                                  ", the current context of device ", device));
  }
  if (const std::string reason = stream->held_for(); !reason.empty()) {
    return Violation(CUDA_ERROR_ILLEGAL_STATE, absl::StrCat("the stream is used ", reason));
  }
  return {};
}

const char* Call::LastText(CUresult result) {
  return last_error.result == result && result != CUDA_SUCCESS ? last_error.text.c_str() : nullptr;
}

}  // namespace crossmesh
