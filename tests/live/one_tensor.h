#pragma once

#include "client/safetensors/writer.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

// A safetensors file of one tensor, of type F32.
inline absl::Status WriteOne(const std::string& path, const std::string& name,
                             std::vector<int64_t> shape, const std::vector<std::byte>& bytes) {
  SafetensorsEntry entry;
  entry.spec.name = name;
  entry.spec.shape = Shape::Create(shape).value();
  entry.bytes = bytes;
  return WriteSafetensors(path, std::vector<SafetensorsEntry>{entry});
}

}  // namespace crossmesh
