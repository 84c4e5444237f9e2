#pragma once

#include "common/base/digest.h"
#include "common/mesh/data_type.h"
#include "common/mesh/shape.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

struct TensorSpec {
  std::string name;  // 1 to 256 bytes of valid UTF-8
  DataType type = DataType::kF32;
  Shape shape;

  int64_t bytes() const { return shape.elements() * ItemBytes(type); }
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// The ordered list of a model's tensors. Immutable. A tensor's index is its place in the list, and
// stands for it wherever both sides have the manifest.
class Manifest {
 public:
  static constexpr int64_t kTensorsMax = 1'000'000;
  static constexpr int64_t kBytesMax = int64_t{1} << 53;

  Manifest();  // of no tensors
  // InvalidArgument: a name that is empty, too long, not UTF-8 or given twice; too many tensors or
  // bytes. Cost: linear in the tensors.
  static absl::StatusOr<Manifest> Create(std::vector<TensorSpec> tensors);

  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  std::optional<int64_t> Find(absl::string_view name) const;
  int64_t bytes() const { return bytes_; }
  // Of names, types and shapes in order.
  const Digest& digest() const { return digest_; }

  friend bool operator==(const Manifest& a, const Manifest& b) { return a.tensors_ == b.tensors_; }

 private:
  std::vector<TensorSpec> tensors_;
  absl::flat_hash_map<std::string, int64_t> index_;
  int64_t bytes_ = 0;
  Digest digest_;
};

}  // namespace crossmesh
