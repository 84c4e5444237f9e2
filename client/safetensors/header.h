#pragma once

#include "common/mesh/manifest.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

struct SafetensorsTensor {
  TensorSpec spec;
  // Bytes from the start of the file's data, half open.
  int64_t begin = 0;
  int64_t end = 0;
  friend bool operator==(const SafetensorsTensor&, const SafetensorsTensor&) = default;
};

// What the header of a safetensors file says, once it is known to be true of the file.
struct SafetensorsHeader {
  // Ascending by their bytes, which follow each other without a gap from 0 to the end of the file.
  std::vector<SafetensorsTensor> tensors;
  std::map<std::string, std::string> metadata;
  // Of the file: where the data starts.
  int64_t data_begin = 0;
};

inline constexpr int64_t kSafetensorsLengthBytes = 8;
inline constexpr int64_t kSafetensorsHeaderBytesMax = 100'000'000;
inline constexpr const char* kSafetensorsMetadataKey = "__metadata__";

// Reads the header of a whole file: 8 bytes of length, JSON, data. Only the header's bytes are
// touched, so `file` may be mapped. Any bytes are safe to give.
//
// InvalidArgument, naming the tensor, what was expected and what was found: a file shorter than it
// says; a header over kSafetensorsHeaderBytesMax; JSON that is not strict, or gives a name twice; a
// key, type or shape that Crossmesh does not know; bytes that are not those of type and shape;
// bytes shared by two tensors, or that belong to none. Cost: linear in the header, and sorting.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> file);

}  // namespace crossmesh
