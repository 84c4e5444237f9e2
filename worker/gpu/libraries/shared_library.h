#pragma once

#include <span>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// A library loaded while the process runs. It stays loaded until the process ends: CUDA and NCCL
// have threads that cannot be joined. Immutable.
class SharedLibrary {
 public:
  // `path` is a file, or a name that the system's loader looks for. NotFound, with the loader's
  // text, when it cannot be loaded.
  static absl::StatusOr<SharedLibrary> Load(const std::string& path);

  // Null when the library has no such symbol.
  void* Find(const char* symbol) const;

  // Sets `function` to the symbol of that name, or to null. Returns whether it was found.
  template <typename Function>
  bool Resolve(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(Find(symbol));
    return function != nullptr;
  }

  // The file that the loader found.
  const std::string& path() const { return path_; }

  // Empty for the real thing. A library that stands in for it, in tests, exports its own name as
  // `const char* crossmeshStandInName()`.
  const std::string& stand_in_name() const { return stand_in_name_; }

  // "NCCL 2.30.7, /usr/lib/libnccl.so.2", and ", Crossmesh stand-in" when it is one.
  std::string Describe(absl::string_view version) const;

 private:
  explicit SharedLibrary(void* handle);

  void* handle_;
  std::string path_;
  std::string stand_in_name_;
};

// FailedPrecondition: of a library that is older than `version_min`, or lacks symbols.
absl::Status TooOld(absl::string_view description, absl::string_view version_min,
                    std::span<const absl::string_view> missing_symbols);

}  // namespace crossmesh
