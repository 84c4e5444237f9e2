#include "common/communicators/shared_memory.h"

#include "common/base/byte_count.h"
#include "common/base/format.h"

#include <absl/strings/str_cat.h>

namespace crossmesh {

std::optional<std::string> SharedMemoryShortage(int64_t free_bytes, int64_t ranks) {
  const int64_t expected_bytes = ranks * kSharedMemoryPerRankBytes;
  if (free_bytes >= expected_bytes) return std::nullopt;
  return absl::StrCat("/dev/shm: expected ", FormatBytes(ByteCount(expected_bytes)),
                      " free for a communicator with ", ranks, " ranks on this host, found ",
                      FormatBytes(ByteCount(free_bytes)));
}

}  // namespace crossmesh
