// What NCCL takes of /dev/shm, where containers have 64 MiB unless they are told otherwise.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <absl/strings/string_view.h>

namespace crossmesh {

// Of each rank of each communicator that has a peer over the network or through host memory: a pool
// of 2048 x 72 operations of 232 bytes (proxyProgressInit of NCCL 2.30, which reserves all of it).
// A communicator whose ranks reach each other over NVLink alone takes none.
inline constexpr int64_t kSharedMemoryPerRankBytes = int64_t{2048} * 72 * 232;

// What makes it larger, for people.
inline constexpr absl::string_view kSharedMemoryAdvice =
    "docker run --shm-size=1g; in Kubernetes an emptyDir of medium Memory at /dev/shm";

// What is wrong where /dev/shm has `free_bytes` left for a communicator with so many ranks on this
// host; nothing where that is enough.
std::optional<std::string> SharedMemoryShortage(int64_t free_bytes, int64_t ranks);

}  // namespace crossmesh
