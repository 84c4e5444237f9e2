#pragma once

#include "common/testing/status_matchers.h"

#include <string>

#include <absl/status/status.h>
#include <gmock/gmock.h>

namespace crossmesh {

// An InvalidArgument, or a StatusOr that is one, whose message contains `part`.
inline auto IsRefused(const std::string& part) {
  return StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr(part));
}

}  // namespace crossmesh
