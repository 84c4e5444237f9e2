// The numeric cases of tests/data/cross_mesh_vectors.json, whose "about" object says what every
// field means.

#pragma once

#include "common/mesh/topology.h"
#include "common/plan/tensor_table.h"
#include "planner/network/fraction.h"

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace crossmesh {

struct CrossMeshVector {
  std::string id;
  std::shared_ptr<const TensorTable> tensors;  // host 3 is "h3"; rates are per second
  Topology topology;
  nlohmann::json json;

  bool has_racks() const { return !topology.racks().empty(); }
};

// All vectors in file order; loaded once. Stops the test program when the file cannot be read.
const std::vector<CrossMeshVector>& CrossMeshVectors();

// [n, d] or n.
Fraction FractionOf(const nlohmann::json& json);

inline std::ostream& operator<<(std::ostream& out, const CrossMeshVector& v) { return out << v.id; }

}  // namespace crossmesh
