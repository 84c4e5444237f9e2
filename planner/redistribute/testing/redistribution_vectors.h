// The cases of planner/redistribute/testdata/redistribution_vectors.json, whose "schema" object
// says what every field means.

#pragma once

#include "planner/redistribute/collective_cost.h"
#include "planner/redistribute/redistribution_request.h"

#include <ostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace crossmesh {

struct RedistributionVector {
  std::string id;
  RedistributionRequest request;
  CollectiveCost cost;  // of the schema's time model
  nlohmann::json json;
};

// All vectors in file order; loaded once. Stops the test program when the file cannot be read.
const std::vector<RedistributionVector>& RedistributionVectors();

inline std::ostream& operator<<(std::ostream& out, const RedistributionVector& v) {
  return out << v.id;
}

}  // namespace crossmesh
