#include "client/doctor/gpu_libraries.h"

#include "common/base/status_macros.h"
#include "common/host_devices/library_function.h"

#include <absl/strings/str_cat.h>

// As nccl.h declares it, which no package that we build with has. Success is 0.
enum ncclResult_t : int;  // NOLINT: the library's name

namespace crossmesh {

absl::StatusOr<std::string> FindNccl(const std::string& library) {
  ASSIGN_OR_RETURN(void* const found, FindFunction(library, "ncclGetVersion"));
  const auto get_version = reinterpret_cast<ncclResult_t (*)(int*)>(found);
  int version = 0;
  if (const int result = get_version(&version); result != 0) {
    return absl::NotFoundError(absl::StrCat(library, ": ncclGetVersion said ", result));
  }
  return absl::StrCat(version / 10'000, ".", version / 100 % 100, ".", version % 100);
}

absl::Status FindM2n(const std::string& library) {
  return FindFunction(library, "ncclReshard").status();
}

}  // namespace crossmesh
