#pragma once

#include "common/base/unique_fd.h"

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// A file in memory with these bytes, which can no longer be changed. ResourceExhausted.
absl::StatusOr<UniqueFd> MakeSealedFile(absl::string_view bytes);

// The bytes of such a file, which another process has made. InvalidArgument when it can still be
// changed, is no such file, or has more than `bytes_max`.
absl::StatusOr<std::string> ReadSealedFile(int fd, int64_t bytes_max);

}  // namespace crossmesh
