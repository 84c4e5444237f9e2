#pragma once

#include "client/safetensors/file.h"
#include "common/mesh/manifest.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// The tensors of one safetensors file, or of a folder of them. Immutable.
class SafetensorsCollection {
 public:
  static constexpr const char* kIndexName = "model.safetensors.index.json";

  // A folder is read by its index where it has one, else all its "*.safetensors" in order of name.
  // NotFound: no such path, or a folder without such files. InvalidArgument: what
  // SafetensorsFile::Open finds; a tensor in two files; an index that is not strict JSON, names a
  // file outside of the folder, or does not list exactly the tensors of the files it names, each in
  // its own; what Manifest::Create refuses.
  static absl::StatusOr<SafetensorsCollection> Open(const std::string& path);

  // Files in order, and the tensors of each as their bytes lie.
  const Manifest& manifest() const { return manifest_; }
  // Row-major elements of a tensor of the manifest, perhaps unaligned.
  std::span<const std::byte> Bytes(int64_t tensor) const {
    const auto& [file, index] = places_[tensor];
    return files_[file].Bytes(index);
  }

 private:
  struct Place {
    size_t file = 0;
    size_t index = 0;
  };

  static absl::StatusOr<SafetensorsCollection> OpenFiles(const std::vector<std::string>& paths);

  std::vector<SafetensorsFile> files_;
  std::vector<Place> places_;  // by tensor
  Manifest manifest_;
};

}  // namespace crossmesh
