#include "common/testing/temporary_folder.h"

#include "common/base/check.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <absl/strings/str_cat.h>

namespace crossmesh {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder()
    : path_((fs::temp_directory_path() / "crossmesh-test-XXXXXX").string()) {
  CHECK(::mkdtemp(path_.data()) != nullptr) << path_;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  fs::remove_all(path_, error);
}

std::string TemporaryFolder::PathOf(absl::string_view file) const {
  return absl::StrCat(path_, "/", file);
}

}  // namespace crossmesh
