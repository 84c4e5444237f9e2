#pragma once

#include "common/mesh/manifest.h"

#include <cstddef>
#include <span>
#include <string>

#include <absl/status/status.h>

namespace crossmesh {

// A tensor to write, with its row-major elements.
struct SafetensorsEntry {
  TensorSpec spec;
  std::span<const std::byte> bytes;
};

// Writes a safetensors file with these tensors in this order. It appears under its name once it is
// whole; a file that has that name is replaced.
//
// InvalidArgument, naming the tensor: bytes that are not as many as its type and shape say;
// kSafetensorsMetadataKey as its name; what Manifest::Create refuses. Otherwise what the system
// says, naming the path.
absl::Status WriteSafetensors(const std::string& path, std::span<const SafetensorsEntry> tensors);

}  // namespace crossmesh
