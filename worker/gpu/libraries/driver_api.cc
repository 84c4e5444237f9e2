#include "worker/gpu/libraries/driver_api.h"

#include "common/base/status_macros.h"

#include <utility>
#include <vector>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

std::string DriverVersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

absl::StatusCode CodeOf(CUresult result) {
  switch (static_cast<int>(result)) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return absl::StatusCode::kResourceExhausted;
    case CUDA_ERROR_NO_DEVICE:
      return absl::StatusCode::kNotFound;
    // Another process has the GPU to itself; the system lacks something; the driver is being
    // replaced; the fabric manager has not come up yet, as after every start of an HGX.
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_OPERATING_SYSTEM:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_SYSTEM_NOT_READY:
      return absl::StatusCode::kUnavailable;
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<const DriverApi>> DriverApi::Load(const Options& options) {
  ASSIGN_OR_RETURN(SharedLibrary library, SharedLibrary::Load(options.library));
  auto api = absl::WrapUnique(new DriverApi(std::move(library)));

  std::vector<absl::string_view> missing;
#define CROSSMESH_RESOLVE(symbol)                       \
  if (const char* name = CROSSMESH_SYMBOL_NAME(symbol); \
      !api->library_.Resolve(name, api->symbol)) {      \
    missing.emplace_back(name);                         \
  }
  CROSSMESH_DRIVER_SYMBOLS(CROSSMESH_RESOLVE)
#undef CROSSMESH_RESOLVE

  if (api->cuDriverGetVersion != nullptr) api->cuDriverGetVersion(&api->version_);
  if (api->version_ < kVersionMin || !missing.empty()) {
    return TooOld(api->description(), DriverVersionText(kVersionMin), missing);
  }
  return api;
}

absl::Status DriverApi::Check(CUresult result, absl::string_view call) const {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  if (cuGetErrorName(result, &name) != CUDA_SUCCESS) name = "unknown result";
  if (cuGetErrorString(result, &text) != CUDA_SUCCESS) text = "no text";
  return absl::Status(CodeOf(result),
                      absl::StrCat(call, ": ", name, " (", static_cast<int>(result), "): ", text));
}

std::string DriverApi::description() const {
  return library_.Describe(absl::StrCat("CUDA driver ", DriverVersionText(version_)));
}

}  // namespace crossmesh
