#include "common/base/sealed_file.h"

#include <cerrno>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace crossmesh {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

absl::Status NoMemory(size_t bytes, absl::string_view call) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "a sealed file of ", bytes, " bytes: ", absl::ErrnoToStatus(errno, call).message()));
}

}  // namespace

absl::StatusOr<UniqueFd> MakeSealedFile(absl::string_view bytes) {
  UniqueFd fd(memfd_create("crossmesh:message", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return NoMemory(bytes.size(), "memfd_create");
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t written = write(fd.get(), bytes.data() + done, bytes.size() - done);
    if (written < 0) return NoMemory(bytes.size(), "write");
    done += written;
  }
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return NoMemory(bytes.size(), "fcntl");
  return fd;
}

absl::StatusOr<std::string> ReadSealedFile(int fd, int64_t bytes_max) {
  // Sealed, it can neither shrink between the calls below nor change while it is parsed.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return absl::InvalidArgumentError("a message in a file: expected a sealed one, found another");
  }
  struct stat found;
  if (fstat(fd, &found) != 0) return absl::ErrnoToStatus(errno, "fstat");
  if (found.st_size > bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", found.st_size, " bytes, expected at most ", bytes_max));
  }
  std::string bytes(found.st_size, '\0');
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t got =
        pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (got <= 0) return absl::ErrnoToStatus(errno, "reading a message from a file");
    done += got;
  }
  return bytes;
}

}  // namespace crossmesh
