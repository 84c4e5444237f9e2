#include "common/base/version.h"

#include <absl/strings/str_cat.h>

namespace crossmesh {

// Both come from cmake/version.cmake, the only place that knows them.
absl::string_view Version() { return CROSSMESH_VERSION; }
absl::string_view Revision() { return CROSSMESH_REVISION; }

std::string VersionLine(absl::string_view program) {
  const std::string line = absl::StrCat(program, " ", Version());
  return Revision().empty() ? line : absl::StrCat(line, " (", Revision(), ")");
}

}  // namespace crossmesh
