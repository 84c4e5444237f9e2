#include "tests/reliability/held_resources.h"

#include "common/base/status_macros.h"

#include <filesystem>
#include <system_error>

namespace crossmesh {

absl::StatusOr<HeldResources> HeldBy(const LiveCluster& cluster, const std::string& daemon) {
  ASSIGN_OR_RETURN(const double descriptors, cluster.Metric(daemon, "process_open_fds"));
  ASSIGN_OR_RETURN(const double threads, cluster.Metric(daemon, "process_threads"));
  ASSIGN_OR_RETURN(const double resident, cluster.Metric(daemon, "process_resident_memory_bytes"));
  ASSIGN_OR_RETURN(const double allocated,
                   cluster.Metric(daemon, "process_allocated_memory_bytes"));
  constexpr double kMegabyte = 1e6;
  return HeldResources{.descriptors = static_cast<int64_t>(descriptors),
                       .threads = static_cast<int64_t>(threads),
                       .resident_mb = resident / kMegabyte,
                       .allocated_mb = allocated / kMegabyte};
}

int64_t FolderBytes(const std::string& folder) {
  int64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    // A file may be gone since it was listed.
    if (const auto size = entry.file_size(error); !error) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

}  // namespace crossmesh
