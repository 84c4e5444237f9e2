#pragma once

#include <string>

#include <absl/status/statusor.h>
#include <nlohmann/json_fwd.hpp>

namespace crossmesh {

// A file that says that a daemon serves, and where. Removed with this object. Thread-compatible.
class ReadyFile {
 public:
  // Adds the process's id to `ready`, and writes it in place of what was there, whole or not at
  // all. An empty path writes nothing. Unavailable: the file cannot be written.
  static absl::StatusOr<ReadyFile> Write(const std::string& path, nlohmann::json ready);

  ReadyFile(ReadyFile&& other) noexcept;
  ReadyFile& operator=(ReadyFile&&) = delete;
  ~ReadyFile();

 private:
  explicit ReadyFile(std::string path);

  std::string path_;  // empty: nothing to remove
};

}  // namespace crossmesh
