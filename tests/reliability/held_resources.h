#pragma once

#include "tests/live/live_cluster.h"

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {

// What a process holds, as its own metrics say.
struct HeldResources {
  int64_t descriptors = 0;
  int64_t threads = 0;
  double resident_mb = 0;
  double allocated_mb = 0;  // 0 under a sanitizer
};
absl::StatusOr<HeldResources> HeldBy(const LiveCluster& cluster, const std::string& daemon);

// Of all files in a folder.
int64_t FolderBytes(const std::string& folder);

}  // namespace crossmesh
