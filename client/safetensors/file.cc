#include "client/safetensors/file.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"

#include <cerrno>
#include <cstdint>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace crossmesh {

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  }
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a regular file"));
  }
  if (status.st_size == 0) return MappedFile({});  // nothing can be mapped
  const auto size = static_cast<size_t>(status.st_size);
  void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (memory == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot map ", path));
  }
  return MappedFile({static_cast<const std::byte*>(memory), size});
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(SafetensorsHeader header, At(path, ParseSafetensorsHeader(file.bytes())));
  return SafetensorsFile(path, std::move(file), std::move(header));
}

std::span<const std::byte> SafetensorsFile::Bytes(size_t index) const {
  const SafetensorsTensor& tensor = header_.tensors[index];
  return file_.bytes().subspan(header_.data_begin + tensor.begin, tensor.end - tensor.begin);
}

}  // namespace crossmesh
