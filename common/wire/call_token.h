#pragma once

#include <cstdint>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Tells what workers send each other for one piece of work from everything else.
struct CallToken {
  uint64_t high = 0;
  uint64_t low = 0;
};

// 16 bytes, big endian. InvalidArgument when it has others.
absl::StatusOr<CallToken> ParseToken(absl::string_view bytes);

}  // namespace crossmesh
