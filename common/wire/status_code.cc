#include "common/wire/status_code.h"

namespace crossmesh {

absl::Status StatusFromCode(int32_t code, absl::string_view message) {
  constexpr int32_t kLastCode = static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
  const bool is_known = code >= 0 && code <= kLastCode;
  return absl::Status(is_known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      message);
}

}  // namespace crossmesh
