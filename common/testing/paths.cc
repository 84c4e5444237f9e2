#include "common/testing/paths.h"

#include <fstream>
#include <sstream>

#include <absl/strings/str_cat.h>

namespace crossmesh {

std::string SourcePath(absl::string_view path) {
  return absl::StrCat(CROSSMESH_SOURCE_FOLDER, "/", path);
}

std::string ProgramPath(absl::string_view name) {
  return absl::StrCat(CROSSMESH_PROGRAM_FOLDER, "/", name);
}

std::string ReadTextFile(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace crossmesh
