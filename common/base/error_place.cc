#include "common/base/error_place.h"

#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::Status At(absl::string_view where, const absl::Status& status) {
  if (status.ok()) return status;  // as that of nearly every call of a driver: no text is made
  return absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

}  // namespace crossmesh
