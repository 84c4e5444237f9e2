#pragma once

#include "worker/transport/piece_cursor.h"

#include <cstddef>
#include <cstdint>

#include <absl/status/statusor.h>
#include <sys/types.h>

namespace crossmesh {

// Copies what comes next from the memory of process `pid` into this one's, at most `bytes_max`
// bytes, and advances both cursors; `from` has addresses of that process. Returns how many bytes
// were copied, at least one: both cursors must have bytes left. Unavailable: that process is gone,
// may not be read, or has no memory there.
absl::StatusOr<size_t> ReadMemory(pid_t pid, PieceCursor& from, PieceCursor& into,
                                  size_t bytes_max);

// The number of the pid namespace of this process. Internal: the system does not say.
absl::StatusOr<uint64_t> ReadPidNamespace();

}  // namespace crossmesh
