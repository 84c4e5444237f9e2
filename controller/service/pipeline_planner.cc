#include "controller/service/pipeline_planner.h"

#include "common/base/clock.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "controller/catalog/catalog.h"
#include "controller/dispatch/planning_queue.h"
#include "planner/pipeline/planning/pipeline_codec.h"
#include "planner/pipeline/planning/planned_pipeline.h"

#include <iterator>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::StatusOr<PipelineDescription> Describe(Catalog& catalog, const v1::PipelineSpec& spec) {
  std::vector<std::shared_ptr<const Mesh>> named(spec.ranks_size());
  for (int rank = 0; rank < spec.ranks_size(); ++rank) {
    if (!spec.ranks(rank).has_mesh()) continue;
    ASSIGN_OR_RETURN(const Registered<Mesh> mesh, At(absl::StrCat("ranks[", rank, "]"),
                                                     catalog.meshes.Get(spec.ranks(rank).mesh())));
    named[rank] = mesh.value;
  }
  ASSIGN_OR_RETURN(PipelineDescription description, FromProto(spec, named));
  if (!description.topology.has_value()) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const NetworkDescription> network,
                     catalog.network.Get());
    description.topology = network->topology;
  }
  return description;
}

template <typename Request>
absl::StatusOr<PipelineDescription> DescribeSource(Catalog& catalog, const Request& request) {
  switch (request.pipeline_source_case()) {
    case Request::kPipeline: {
      ASSIGN_OR_RETURN(const Registered<PipelineRecord> pipeline,
                       catalog.pipelines.Get(request.pipeline()));
      return Describe(catalog, pipeline.value->spec);
    }
    case Request::kInlinePipeline:
      return Describe(catalog, request.inline_pipeline());
    case Request::PIPELINE_SOURCE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "pipeline_source: expected the name of a pipeline or a specification, found neither");
}

// Every edge is planned both ways. To search a schedule takes about as long for each of its ops as
// to plan for kOpCost tensors of one slot.
int64_t CostOf(const PipelineDescription& pipeline) {
  constexpr int64_t kOpCost = 32;
  int64_t cost = kOpCost * std::ssize(pipeline.stages) * std::ssize(pipeline.samples);
  for (const PipelineDescription::Edge& edge : pipeline.edges) {
    int64_t slots = 0;
    for (const StageIndex stage : {edge.from, edge.to}) {
      slots += pipeline.ranks[pipeline.stages[stage].rank].mesh->slots();
    }
    cost += 2 * PlanningCost(std::ssize(edge.tensors), slots);
  }
  return cost;
}

// All that is named is looked up now: the plan is of what was registered when the request came.
template <typename Request>
absl::StatusOr<PipelinePlanner::Planning> OpenSource(Catalog& catalog, const Request& request) {
  ASSIGN_OR_RETURN(PipelineDescription pipeline, DescribeSource(catalog, request));
  const int64_t cost = CostOf(pipeline);
  return PipelinePlanner::Planning{
      .cost = cost,
      .plan = [pipeline = std::move(pipeline), choice = request.choice()](CancelCheck cancelled) {
        return PlanPipeline(pipeline, choice, cancelled);
      }};
}

}  // namespace

absl::Status PipelinePlanner::Check(const v1::PipelineSpec& spec) const {
  return Describe(catalog_, spec).status();
}

absl::StatusOr<PipelinePlanner::Planning> PipelinePlanner::Open(
    const v1::PlanPipelineRequest& request) const {
  return OpenSource(catalog_, request);
}

absl::StatusOr<PipelinePlanner::Planning> PipelinePlanner::Open(
    const v1::StartPipelineRequest& request) const {
  return OpenSource(catalog_, request);
}

absl::StatusOr<v1::PipelinePlan> PipelinePlanner::Plan(Planning& planning,
                                                       CancelCheck cancelled) const {
  RETURN_IF_ERROR(CheckWanted(cancelled));
  const absl::Duration begin = clock_.Monotonic();
  ASSIGN_OR_RETURN(const std::shared_ptr<const PlannedPipeline> planned, planning.plan(cancelled));
  v1::PipelinePlan summary = planned->Summary();
  summary.set_plan_seconds(absl::ToDoubleSeconds(clock_.Monotonic() - begin));
  return summary;
}

}  // namespace crossmesh
