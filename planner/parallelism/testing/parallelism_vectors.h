// The cases of planner/parallelism/testdata/parallelism_vectors.json, whose "conventions" object
// says what fields mean.

#pragma once

#include "planner/parallelism/grid.h"

#include <ostream>
#include <string>
#include <vector>

#include <absl/strings/string_view.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace crossmesh {

struct ParallelismVector {
  std::string id;
  std::string kind;
  nlohmann::json inputs;
  nlohmann::json expected;
  double relative_tolerance = 0;
};
inline std::ostream& operator<<(std::ostream& out, const ParallelismVector& v) {
  return out << v.id;
}

// All of them, in file order; loaded once. Stops the test program when the file cannot be read.
const std::vector<ParallelismVector>& ParallelismVectors();
// Those of a kind.
std::vector<ParallelismVector> ParallelismVectorsOf(absl::string_view kind);

// {"c": 1, "r": 4, "z": 8, "data": 2}.
Grid GridOfJson(const nlohmann::json& json);

// |got - expected| <= tolerance * |expected|, as the file compares.
::testing::AssertionResult IsNear(double got, double expected, double tolerance);

}  // namespace crossmesh
