#pragma once

#include "common/mesh/manifest.h"

#include <string>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

struct ManifestFile {
  std::string model;   // what the tensors are of, for people; may be empty
  std::string source;  // where the list comes from, for people; may be empty
  Manifest manifest;
};

// Reads the text of a manifest file:
//
//   {"model": "GPT-2 124M", "source": "published configuration", "total_bytes": 154389504,
//    "tensors": [{"name": "wte.weight", "shape": [50257, 768], "dtype": "F32"}]}
//
// All but "tensors" may be missing. InvalidArgument, naming the tensor: malformed JSON, a key that
// is unknown, missing or given twice, a value of another type, a total that is not the tensors'
// sum, and what Shape, DataType and Manifest::Create refuse.
absl::StatusOr<ManifestFile> ParseManifestFile(absl::string_view text);

}  // namespace crossmesh
