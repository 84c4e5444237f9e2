#include "planner/parallelism/testing/parallelism_vectors.h"

#include "common/testing/paths.h"

#include <cmath>
#include <fstream>

namespace crossmesh {
namespace {

using Json = nlohmann::json;

std::vector<ParallelismVector> Load() {
  const Json file = Json::parse(
      std::ifstream(SourcePath("planner/parallelism/testdata/parallelism_vectors.json")));
  std::vector<ParallelismVector> vectors;
  for (const Json& vector : file["vectors"]) {
    vectors.push_back({.id = vector["id"],
                       .kind = vector["kind"],
                       .inputs = vector["inputs"],
                       .expected = vector["expected"],
                       .relative_tolerance = vector["relative_tolerance"]});
  }
  return vectors;
}

}  // namespace

const std::vector<ParallelismVector>& ParallelismVectors() {
  static const auto& vectors = *new std::vector<ParallelismVector>(Load());
  return vectors;
}

std::vector<ParallelismVector> ParallelismVectorsOf(absl::string_view kind) {
  std::vector<ParallelismVector> found;
  for (const ParallelismVector& vector : ParallelismVectors()) {
    if (vector.kind == kind) found.push_back(vector);
  }
  return found;
}

Grid GridOfJson(const Json& json) {
  Grid grid;
  for (const GridAxis axis : kGridAxes) {
    const std::string name(GridAxisName(axis));
    if (json.contains(name)) grid[axis] = json[name];
  }
  return grid;
}

::testing::AssertionResult IsNear(double got, double expected, double tolerance) {
  if (std::abs(got - expected) <= tolerance * std::abs(expected)) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure()
         << "expected " << expected << " to " << tolerance << ", found " << got;
}

}  // namespace crossmesh
