#include "worker/gpu/libraries/shared_library.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <dlfcn.h>
#include <link.h>

namespace crossmesh {

absl::StatusOr<SharedLibrary> SharedLibrary::Load(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    return absl::NotFoundError(absl::StrCat("library ", path, " cannot be loaded: ", dlerror()));
  }
  return SharedLibrary(handle);
}

SharedLibrary::SharedLibrary(void* handle) : handle_(handle) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) == 0) path_ = map->l_name;
  const char* (*name)() = nullptr;
  if (Resolve("crossmeshStandInName", name)) stand_in_name_ = name();
}

void* SharedLibrary::Find(const char* symbol) const { return dlsym(handle_, symbol); }

std::string SharedLibrary::Describe(absl::string_view version) const {
  std::string text = absl::StrCat(version, ", ", path_);
  if (!stand_in_name_.empty()) absl::StrAppend(&text, ", ", stand_in_name_);
  return text;
}

absl::Status TooOld(absl::string_view description, absl::string_view version_min,
                    std::span<const absl::string_view> missing_symbols) {
  return absl::FailedPreconditionError(
      absl::StrCat(description, ": expected version ", version_min, " or later",
                   missing_symbols.empty() ? "" : ", and these symbols, which it lacks: ",
                   absl::StrJoin(missing_symbols, ", ")));
}

}  // namespace crossmesh
