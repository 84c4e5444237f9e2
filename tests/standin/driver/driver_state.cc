#include "tests/standin/driver/driver_state.h"

#include "tests/standin/driver/faults.h"
#include "tests/standin/driver/journal.h"
#include "tests/standin/driver/visible_devices.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <dlfcn.h>

namespace crossmesh {
namespace {

thread_local Context* current_context = nullptr;

// Settings under which calls wait for what never ends.
void CheckSettings() {
  for (const char* setting : {"CUDA_DEVICE_MAX_CONNECTIONS=1", "CUDA_DEVICE_WAITS_ON_EXCEPTION=1",
                              "CUDA_LAUNCH_BLOCKING=1", "NCCL_COMM_BLOCKING=1"}) {
    const std::pair<std::string, std::string> wrong = absl::StrSplit(setting, '=');
    const char* const value = std::getenv(wrong.first.c_str());
    if (value == nullptr || value != wrong.second) continue;
    Journal::OfProcess().Violate(absl::StrCat("cuInit: expected another setting than ", setting));
  }
}

}  // namespace

DriverState& DriverState::OfProcess() {
  static DriverState& state = *new DriverState;
  return state;
}

DriverState::DriverState()
    : memory(int64_t{NumberFromEnvironment("CROSSMESH_STANDIN_MEMORY_MIB", 1024)} << 20),
      numbers_(VisibleDevices()),
      contexts_(numbers_.size()) {
  for (int device = 0; device < device_count(); ++device) contexts_[device].device = device;
}

Outcome DriverState::Initialize() {
  if (contexts_.empty()) return Failure(CUDA_ERROR_NO_DEVICE, "this process sees no device");
  if (initialized_.exchange(true)) return {};
  CheckSettings();
  for (const Context& context : contexts_) lives_.emplace_back(NumberOf(context.device));
  const char* path = std::getenv("CROSSMESH_STANDIN_KERNELS");
  if (path == nullptr) return {};
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return Failure(CUDA_ERROR_FILE_NOT_FOUND, dlerror());
  const auto add_all =
      reinterpret_cast<StandInKernelsFunction>(dlsym(library, "crossmeshStandInKernels"));
  if (add_all == nullptr) return Failure(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND, dlerror());
  add_all(crossmeshStandInAddKernel);
  return {};
}

std::string DriverState::OriginOf(int device) const {
  return absl::StrCat(NumberOf(device), ".", lives_[device].number());
}

CUcontext DriverState::RetainContext(int device) {
  MutexLock lock(mutex_);
  ++contexts_[device].references;
  return reinterpret_cast<CUcontext>(&contexts_[device]);
}

Outcome DriverState::ReleaseContext(int device) {
  {
    MutexLock lock(mutex_);
    if (contexts_[device].references == 0) {
      return Violation(CUDA_ERROR_INVALID_CONTEXT, "released more often than retained");
    }
    if (--contexts_[device].references > 0) return {};
    // What was made in it cannot be destroyed, and goes with it.
    if (contexts_[device].broken) return {};
  }
  const auto of_device = [&](const auto* object) { return object->device() == device; };
  const auto left_streams = std::ranges::count_if(streams.Open(), of_device);
  const auto left_events = std::ranges::count_if(events.Open(), of_device);
  const int64_t left_bytes = memory.TakenBytes(device);
  if (left_streams == 0 && left_events == 0 && left_bytes == 0) return {};
  return Violation(CUDA_ERROR_ILLEGAL_STATE,
                   absl::StrCat("the context goes and leaves ", left_streams, " streams, ",
                                left_events, " events and ", left_bytes, " bytes"));
}

CUcontext DriverState::CurrentContext() {
  MutexLock lock(mutex_);
  const bool is_there = current_context != nullptr && current_context->references > 0;
  return is_there ? reinterpret_cast<CUcontext>(current_context) : nullptr;
}

int DriverState::CurrentDevice() {
  const auto* const context = reinterpret_cast<const Context*>(CurrentContext());
  return context == nullptr ? -1 : context->device;
}

Outcome DriverState::SetCurrentContext(CUcontext context) {
  MutexLock lock(mutex_);
  auto* const wanted = reinterpret_cast<Context*>(context);
  if (wanted != nullptr) {
    const bool known = std::ranges::any_of(
        contexts_, [&](const Context& one) { return &one == wanted && one.references > 0; });
    if (!known) return Violation(CUDA_ERROR_INVALID_CONTEXT, "no such context, or it was released");
  }
  current_context = wanted;
  return {};
}

void DriverState::BreakContext(int device) {
  MutexLock lock(mutex_);
  contexts_[device].broken = true;
}

Outcome DriverState::CheckContext(int device) {
  MutexLock lock(mutex_);
  if (!contexts_[device].broken) return {};
  const int64_t result = Faults::OfProcess().Value("broken_result");
  return Failure(result == 0 ? CUDA_ERROR_ILLEGAL_ADDRESS : static_cast<CUresult>(result),
                 "injected fault illegal_address_at, some time before");
}

void DriverState::SynchronizeDevice(int device) {
  for (Stream* stream : streams.Open()) {
    if (stream->device() == device) stream->WaitUntilIdle();
  }
}

}  // namespace crossmesh
