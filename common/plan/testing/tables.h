#pragma once

#include "common/mesh/data_type.h"
#include "common/plan/tensor_table.h"

#include <optional>
#include <string>
#include <vector>

#include <absl/strings/string_view.h>

namespace crossmesh {

// One tensor of a hand-written table, in the text forms of meshes and layouts.
struct TensorText {
  std::string shape;             // "[10, 4]"
  std::string source_mesh;       // "x=2 on a.0-1"
  std::string source;            // "[x, -] chunk"
  std::string destination_mesh;  // "y=2 on b.0-1"
  std::string destination;
  DataType type = DataType::kF32;
  std::optional<DataType> sent_as = std::nullopt;
};

// The same in one line, "[10, 4]: x=2 on a.0-1 [x, -] -> y=2 on b.0-1 [-, y]": the shape, then mesh
// and layout of the source and of the destination. Aborts when a text has another form.
TensorText TensorOf(absl::string_view text, DataType type = DataType::kF32,
                    std::optional<DataType> sent_as = std::nullopt);

// A table of these tensors, each in a group of its own, and of their scales. Aborts when a text is
// wrong.
TensorTable TableOf(const std::vector<TensorText>& tensors,
                    std::vector<std::string> replica_axes = {});
// The specification of that table, to be changed.
TensorTable::Spec TableSpecOf(const std::vector<TensorText>& tensors);

}  // namespace crossmesh
