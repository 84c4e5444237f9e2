#include "tests/benchmark/model_redistribution.h"

#include "common/base/check.h"
#include "common/mesh/layout_rules.h"
#include "common/mesh/mesh.h"
#include "common/plan/proof.h"
#include "common/plan/tensor_table.h"
#include "common/reshard/reshard_tensors.h"
#include "planner/redistribute/planning/plan_redistribution.h"
#include "tests/benchmark/measure.h"
#include "tests/benchmark/models.h"

#include <memory>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

constexpr int kRepeats = 5;
constexpr absl::string_view kSourceRules = R"(
    *norm.weight          [...]
    *.gate.weight         [-, node*gpu]
    *.up_proj.weight      [gpu, node]
    *                     [node*gpu, -])";
constexpr absl::string_view kDestinationRules = R"(
    *.o_proj.weight       [-, tensor]
    *.down_proj.weight    [-, data*tensor]
    *.k_proj.weight       [tensor, data]
    *.up_proj.weight      [tensor, -]
    *.input_layernorm.*   [tensor]
    *norm.weight          [...]
    *.gate.weight         [-, -]
    *                     [tensor, -])";

LayoutRules Rules(absl::string_view text) {
  absl::StatusOr<LayoutRules> rules = LayoutRules::Parse(text);
  CHECK_OK(rules);
  return *std::move(rules);
}

Mesh MeshOf(absl::string_view text) {
  absl::StatusOr<Mesh> mesh = ParseMesh(text);
  CHECK_OK(mesh);
  return *std::move(mesh);
}

Plan ProvenPlan(const Manifest& manifest, bool no_relays) {
  absl::StatusOr<TensorTable> tensors = BuildReshardTensors(
      manifest, {.mesh = MeshOf("node=2,gpu=8 on a.0-7,b.0-7"), .rules = Rules(kSourceRules)},
      {.mesh = MeshOf("data=2,tensor=8 on a.0-7,b.0-7"), .rules = Rules(kDestinationRules)}, {});
  CHECK_OK(tensors);
  ReshardRequest request{.tensors = std::make_shared<const TensorTable>(*std::move(tensors)),
                         .strategy = Strategy::kRedistribute};
  request.redistribution.no_relays = no_relays;
  absl::StatusOr<Plan> plan = PlanRedistribution(request);
  CHECK_OK(plan);
  CHECK_OK(Prove(*plan));
  return *std::move(plan);
}

}  // namespace

nlohmann::json MeasureModelRedistribution(bool no_relays) {
  const Manifest manifest = Qwen3Manifest();
  nlohmann::json figure = {{"figure", "model"}, {"no_relays", no_relays}};
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) {
    const double before = ThreadSeconds();
    const Plan plan = ProvenPlan(manifest, no_relays);
    seconds.push_back(ThreadSeconds() - before);
    figure["tensors"] = plan.tensors().group_of_tensor().size();
    figure["pairs"] = plan.tensors().groups().size();
    figure["search"] = plan.figures().search;
  }
  figure["seconds"] = MedianOf(seconds);
  return figure;
}

}  // namespace crossmesh
