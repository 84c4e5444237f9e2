#include "common/host_devices/library_function.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <dlfcn.h>

namespace crossmesh {

absl::StatusOr<void*> FindFunction(const std::string& library, const char* name) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::NotFoundError(dlerror());  // NOLINT(concurrency-mt-unsafe): of this thread
  }
  void* const function = dlsym(handle, name);
  if (function != nullptr) return function;
  return absl::NotFoundError(absl::StrCat(library, ": no ", name));
}

}  // namespace crossmesh
