#include "planner/redistribute/testing/redistribution_vectors.h"

#include "common/base/check.h"
#include "common/testing/paths.h"

#include <cstdint>
#include <fstream>
#include <utility>

namespace crossmesh {
namespace {

using Json = nlohmann::json;

SubAxis PartOf(const Json& json, const std::vector<Axis>& axes) {
  const absl::StatusOr<SubAxis> part = ParseSubAxis(json.get<std::string>(), axes);
  CHECK_OK(part);
  return *part;
}

RedistributionEnd EndOf(const Json& json, const std::vector<Axis>& axes) {
  RedistributionEnd end;
  for (const Json& dimension : json["dims"]) {
    std::vector<SubAxis>& parts = end.dimensions.emplace_back();
    for (const Json& part : dimension) parts.push_back(PartOf(part, axes));
  }
  for (const Json& part : json["partial"]) end.partial.push_back({PartOf(part, axes)});
  return end;
}

UnevenRule RuleOf(const std::string& partition) {
  if (partition == "even") return UnevenRule::kExact;
  if (partition == "flat_ceil") return UnevenRule::kChunk;
  CHECK(partition == "nested_ceil") << partition;
  return UnevenRule::kNestedChunk;
}

RedistributionRequest RequestOf(const Json& json) {
  RedistributionRequest request;
  for (const Json& axis : json["mesh"]) request.axes.push_back({axis["name"], axis["size"]});
  const absl::StatusOr<Shape> shape = Shape::Create(json["shape"].get<std::vector<int64_t>>());
  CHECK_OK(shape);
  request.shape = *shape;
  request.item_bytes = json["itemsize"];
  request.source = EndOf(json["src"], request.axes);
  request.destination = EndOf(json["dst"], request.axes);
  request.source.rule = request.destination.rule = RuleOf(json["partition"]);
  return request;
}

CollectiveCost CostOf(const Json& model, const Json& mesh) {
  CollectiveCost cost{.seconds_per_step = model["alpha0"]};
  int32_t number = 0;
  for (const Json& axis : mesh) {
    const std::string level = axis["level"];
    cost.links.push_back({.part = {.axis = number++, .size = axis["size"]},
                          .seconds_per_message = model["alpha"][level],
                          .bytes_per_second = model["bandwidth_bytes_per_s"][level]});
  }
  return cost;
}

std::vector<RedistributionVector> Load() {
  const Json file = Json::parse(
      std::ifstream(SourcePath("planner/redistribute/testdata/redistribution_vectors.json")));
  const Json& model = file["schema"]["models"]["time"];
  std::vector<RedistributionVector> vectors;
  for (const Json& vector : file["vectors"]) {
    vectors.push_back({.id = vector["id"],
                       .request = RequestOf(vector),
                       .cost = CostOf(model, vector["mesh"]),
                       .json = vector});
  }
  return vectors;
}

}  // namespace

const std::vector<RedistributionVector>& RedistributionVectors() {
  static const auto& vectors = *new std::vector<RedistributionVector>(Load());
  return vectors;
}

}  // namespace crossmesh
