#include "common/daemon/ready_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace crossmesh {

absl::StatusOr<ReadyFile> ReadyFile::Write(const std::string& path, nlohmann::json ready) {
  if (path.empty()) return ReadyFile(path);
  ready["pid"] = getpid();
  const std::string next_path = path + ".next";
  std::ofstream file(next_path);
  file << ready.dump() << "\n";
  file.close();
  if (!file || std::rename(next_path.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(next_path.c_str());
    return absl::UnavailableError(
        absl::StrCat("ready file ", path, ": cannot be written: ", std::strerror(error)));
  }
  return ReadyFile(path);
}

ReadyFile::ReadyFile(std::string path) : path_(std::move(path)) {}

ReadyFile::ReadyFile(ReadyFile&& other) noexcept : path_(std::exchange(other.path_, "")) {}

ReadyFile::~ReadyFile() {
  if (!path_.empty()) unlink(path_.c_str());
}

}  // namespace crossmesh
