#include "common/base/error_place.h"

#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::Status At(absl::string_view where, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

}  // namespace crossmesh
