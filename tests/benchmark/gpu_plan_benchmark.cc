// What plans between GPUs ask of each of them: steps, launches, groups and messages, and the share
// of the bound that the prediction comes to, as a table. It counts them in compiled parts, and runs
// nothing.

#include "common/base/check.h"
#include "common/mesh/gpu_host.h"
#include "common/reshard/reshard_tensors.h"
#include "planner/reshard/plan_reshard.h"
#include "tests/benchmark/models.h"
#include "tests/benchmark/plan_cases.h"
#include "worker/gpu/compiler/testing/compiled_parts.h"
#include "worker/gpu/compiler/testing/part_work.h"

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

constexpr int64_t kStagingBytes = int64_t{256} << 20;

constexpr char kHeader[] = "%-32s %8s %12s %12s %14s %10s\n";
constexpr char kRow[] = "%-32s %8d %12.1f %12.1f %14d %9.1f%%\n";

struct Request {
  std::string name;
  PlanCase plan_case;
};

// 15 GB, cut by rows on one side and by columns on the other.
PlanCase Matrix(const std::string& source, const std::string& destination,
                const std::vector<std::string>& replica_axes = {}) {
  const auto mesh = [](const std::string& text) {
    absl::StatusOr<Mesh> parsed = ParseMesh(text);
    CHECK_OK(parsed);
    return *std::move(parsed);
  };
  const auto rules = [](const std::string& text) {
    absl::StatusOr<LayoutRules> parsed = LayoutRules::Parse(text);
    CHECK_OK(parsed);
    return *std::move(parsed);
  };
  return {.manifest = OneMatrix(61440, 61440),
          .source_mesh = mesh(source),
          .source_rules = rules("* [x, -]"),
          .destination_mesh = mesh(destination),
          .destination_rules = rules("* [-, y]"),
          .replica_axes = replica_axes};
}

std::vector<Request> Requests() {
  std::vector<Request> requests;
  requests.push_back({"4 GPUs of a host to its others", Matrix("x=4 on a.0-3", "y=4 on a.4-7")});
  requests.push_back({"8 GPUs of a host", Matrix("x=8 on a.0-7", "y=8 on a.0-7")});
  requests.push_back({"1 GPU to 1", Matrix("x=1 on a.0", "y=1 on b.0")});
  requests.push_back(
      {"1 GPU to 4 replicas", Matrix("x=1 on a.0", "r=4,y=1 on b.0,c.0,d.0,e.0", {"r"})});
  requests.push_back({"16 GPUs to 4 replicas of 8",
                      Matrix("x=16 on a.0-7,b.0-7", "r=4,y=8 on e.0-7,f.0-7,g.0-7,h.0-7", {"r"})});
  requests.push_back({"Qwen3-235B, 32 GPUs to 32", Qwen3ToReplicas(4, 4)});
  return requests;
}

Plan PlanOf(const PlanCase& plan_case) {
  absl::StatusOr<TensorTable> table = BuildReshardTensors(
      plan_case.manifest, {.mesh = plan_case.source_mesh, .rules = plan_case.source_rules},
      {.mesh = plan_case.destination_mesh, .rules = plan_case.destination_rules},
      plan_case.replica_axes);
  CHECK_OK(table);
  ReshardRequest request{.tensors = std::make_shared<const TensorTable>(*std::move(table))};
  request.topology = *GpuHosts("h100x8", request.tensors->hosts());
  absl::StatusOr<Plan> plan = PlanReshard(request);
  CHECK_OK(plan);
  return *std::move(plan);
}

// Of the GPU that has most launches for each GiB.
std::string RowOf(const std::string& name, const Plan& plan) {
  const absl::StatusOr<CompiledParts> parts =
      CompiledPartsOf(plan, {.staging_bytes = kStagingBytes});
  CHECK_OK(parts);
  std::vector<PartWork> works;
  for (const auto& part : *parts) works.push_back(WorkOf(*part));
  const PartWork& most = *std::ranges::max_element(works, {}, [](const PartWork& work) {
    return static_cast<double>(work.launches) / work.gibibytes();
  });
  const double share = plan.figures().bound.seconds / plan.figures().predicted_seconds;
  return absl::StrFormat(kRow, name, most.steps,
                         static_cast<double>(most.launches) / most.gibibytes(),
                         static_cast<double>(most.groups) / most.gibibytes(),
                         most.bytes / std::max<int64_t>(1, most.messages), 100 * share);
}

int Main() {
  std::cout << "H100s; of the GPU with most launches for each GiB that it sends and receives.\n"
            << absl::StrFormat(kHeader, "request", "steps", "launches/GiB", "groups/GiB",
                               "message bytes", "share");
  for (const Request& request : Requests()) {
    std::cout << RowOf(request.name, PlanOf(request.plan_case)) << std::flush;
  }
  return 0;
}

}  // namespace
}  // namespace crossmesh

int main() { return crossmesh::Main(); }
