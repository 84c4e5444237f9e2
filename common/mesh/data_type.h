#pragma once

#include <cstdint>
#include <ostream>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The element types of safetensors files, with their spelling there ("BF16", "F8_E4M3", ...).
enum class DataType : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64,
};

// Bytes of one element: 1, 2, 4 or 8.
int64_t ItemBytes(DataType type);

// The spelling of safetensors, e.g. "BF16".
absl::string_view DataTypeName(DataType type);

// InvalidArgument when `name` is not the exact spelling of a type above; the message lists them.
absl::StatusOr<DataType> ParseDataType(absl::string_view name);

inline std::ostream& operator<<(std::ostream& out, DataType type) {
  return out << DataTypeName(type);
}

}  // namespace crossmesh
