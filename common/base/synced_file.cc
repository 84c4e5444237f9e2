#include "common/base/synced_file.h"

#include "common/base/unique_fd.h"

#include <cerrno>
#include <cstdio>

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <unistd.h>

namespace crossmesh {
namespace {

absl::Status FileProblem(absl::string_view doing, const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat(doing, " ", path));
}

}  // namespace

absl::Status ReplaceSynced(const std::string& path, absl::string_view text) {
  const std::string next = path + ".next";
  const UniqueFd file(open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (file.get() < 0) return FileProblem("create", next);
  if (write(file.get(), text.data(), text.size()) != std::ssize(text) || fsync(file.get()) != 0) {
    return FileProblem("write", next);
  }
  if (std::rename(next.c_str(), path.c_str()) != 0) return FileProblem("replace", path);
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const UniqueFd entry(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (entry.get() < 0 || fsync(entry.get()) != 0) return FileProblem("sync folder of", path);
  return absl::OkStatus();
}

}  // namespace crossmesh
