#pragma once

#include <cstdint>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Of a gRPC status code as a message has it; a code that is none is Unknown.
absl::Status StatusFromCode(int32_t code, absl::string_view message);

}  // namespace crossmesh
