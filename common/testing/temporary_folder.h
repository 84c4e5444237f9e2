#pragma once

#include <string>

#include <absl/strings/string_view.h>

namespace crossmesh {

// An empty folder for a test's files, with a path that is short enough for a socket's; it goes with
// all that is in it when this does. Immutable.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string PathOf(absl::string_view file) const;

 private:
  std::string path_;
};

}  // namespace crossmesh
