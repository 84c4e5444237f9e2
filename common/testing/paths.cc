#include "common/testing/paths.h"

#include <absl/strings/str_cat.h>

namespace crossmesh {

std::string SourcePath(absl::string_view path) {
  return absl::StrCat(CROSSMESH_SOURCE_FOLDER, "/", path);
}

std::string ProgramPath(absl::string_view name) {
  return absl::StrCat(CROSSMESH_PROGRAM_FOLDER, "/", name);
}

}  // namespace crossmesh
