#pragma once

#include "client/safetensors/header.h"

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// A read-only mapping of a whole file. Move-only; immutable.
class MappedFile {
 public:
  // NotFound, PermissionDenied or InvalidArgument (not a regular file), naming the path.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

// A safetensors file, mapped: opening it reads the header only. The file must not be cut shorter
// while it is open. Immutable.
class SafetensorsFile {
 public:
  // What MappedFile::Open and ParseSafetensorsHeader find, with the path in front.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const SafetensorsHeader& header() const { return header_; }
  // Row-major elements of a tensor, perhaps unaligned. `index`: into header().tensors.
  std::span<const std::byte> Bytes(size_t index) const;

 private:
  SafetensorsFile(std::string path, MappedFile file, SafetensorsHeader header)
      : path_(std::move(path)), file_(std::move(file)), header_(std::move(header)) {}

  std::string path_;
  MappedFile file_;
  SafetensorsHeader header_;
};

}  // namespace crossmesh
