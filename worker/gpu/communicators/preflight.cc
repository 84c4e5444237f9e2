#include "worker/gpu/communicators/preflight.h"

#include "common/base/status_macros.h"

#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>
#include <unistd.h>

namespace crossmesh {

absl::StatusOr<int64_t> FreeGpuBytes(const DriverApi& driver) {
  size_t free = 0;
  size_t total = 0;
  RETURN_IF_ERROR(driver.Check(driver.cuMemGetInfo(&free, &total), "cuMemGetInfo"));
  return static_cast<int64_t>(free);
}

std::map<std::string, std::string> GpuEnvironment(const char* const* environment) {
  std::map<std::string, std::string> found;
  for (; *environment != nullptr; ++environment) {
    const std::pair<std::string, std::string> variable =
        absl::StrSplit(*environment, absl::MaxSplits('=', 1));
    if (absl::StartsWith(variable.first, "NCCL_") || absl::StartsWith(variable.first, "CUDA_")) {
      found.insert(variable);
    }
  }
  return found;
}

absl::StatusOr<PreflightReport> TakePreflight(const DriverApi& driver, const NcclApi& nccl,
                                              const RankName& self) {
  ASSIGN_OR_RETURN(const int64_t free_bytes, FreeGpuBytes(driver));
  return PreflightReport{.rank = self,
                         .nccl_version = nccl.version(),
                         .nccl_library = nccl.description(),
                         .driver_version = driver.version(),
                         .environment = GpuEnvironment(environ),
                         .free_bytes = free_bytes};
}

}  // namespace crossmesh
