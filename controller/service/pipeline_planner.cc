#include "controller/service/pipeline_planner.h"

#include "common/base/clock.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/wire/tensor_codec.h"
#include "controller/catalog/catalog.h"
#include "controller/dispatch/planning_queue.h"
#include "controller/dispatch/runnable_plan.h"
#include "planner/layers/layer_program_codec.h"
#include "planner/layers/planned_layers.h"
#include "planner/pipeline/planning/pipeline_codec.h"
#include "planner/pipeline/planning/planned_pipeline.h"

#include <iterator>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// The meshes that are registered under the names of ranks, by rank; null where it is inline.
template <typename Ranks>
absl::StatusOr<std::vector<std::shared_ptr<const Mesh>>> FindMeshes(Catalog& catalog,
                                                                    const Ranks& ranks) {
  std::vector<std::shared_ptr<const Mesh>> named(ranks.size());
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].has_mesh()) continue;
    ASSIGN_OR_RETURN(const Registered<Mesh> mesh,
                     At(absl::StrCat("ranks[", rank, "]"), catalog.meshes.Get(ranks[rank].mesh())));
    named[rank] = mesh.value;
  }
  return named;
}

template <typename Spec>
absl::Status ResolveMeshes(Catalog& catalog, Spec& spec) {
  ASSIGN_OR_RETURN(const auto named, FindMeshes(catalog, spec.ranks()));
  for (int rank = 0; rank < spec.ranks_size(); ++rank) {
    if (named[rank] == nullptr) continue;
    *spec.mutable_ranks(rank)->mutable_inline_mesh() = ToProto(*named[rank]);
  }
  return absl::OkStatus();
}

// With the current network where there is none.
template <typename Description, typename Spec>
absl::StatusOr<Description> DescribeSpec(Catalog& catalog, const Spec& spec) {
  ASSIGN_OR_RETURN(const auto named, FindMeshes(catalog, spec.ranks()));
  ASSIGN_OR_RETURN(Description description, FromProto(spec, named));
  if (!description.topology.has_value()) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const NetworkDescription> network,
                     catalog.network.Get());
    description.topology = network->topology;
  }
  return description;
}

absl::StatusOr<PipelineDescription> Describe(Catalog& catalog, const v1::PipelineSpec& spec) {
  return DescribeSpec<PipelineDescription>(catalog, spec);
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
    case Request::kInlineLayers:
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

// Equal transfers are planned once; that none is equal to another is the most that can be.
int64_t CostOf(const LayerProgram& program) {
  int64_t cost = std::ssize(program.ops);
  for (const LayerProgram::Transfer& transfer : program.transfers) {
    int64_t slots = 0;
    for (const RankIndex rank : {program.from(transfer), program.to(transfer)}) {
      slots += program.ranks[rank].mesh->slots();
    }
    cost += std::ssize(transfer.messages) + PlanningCost(std::ssize(transfer.tensors), slots);
  }
  return cost;
}

absl::StatusOr<PipelinePlanner::Planning> OpenLayers(Catalog& catalog,
                                                     const v1::LayerProgramSpec& spec) {
  ASSIGN_OR_RETURN(DescribedLayers layers, DescribeSpec<DescribedLayers>(catalog, spec));
  const int64_t cost = CostOf(layers.program);
  return PipelinePlanner::Planning{
      .cost = cost,
      .plan = [layers = std::move(layers)](CancelCheck cancelled) mutable
          -> absl::StatusOr<std::shared_ptr<const RunnablePlan>> {
        ASSIGN_OR_RETURN(auto planned,
                         PlanLayers(std::move(layers.program), *layers.topology, cancelled));
        return MakeRunnable(std::move(planned));
      }};
}

// All that is named is looked up now: the plan is of what was registered when the request came.
template <typename Request>
absl::StatusOr<PipelinePlanner::Planning> OpenSource(Catalog& catalog, const Request& request) {
  if (request.has_inline_layers()) {
    if (!request.has_choice()) return OpenLayers(catalog, request.inline_layers());
    return absl::InvalidArgumentError(
        "choice: expected none for a layer program, whose order is given, found one");
  }
  ASSIGN_OR_RETURN(PipelineDescription pipeline, DescribeSource(catalog, request));
  const int64_t cost = CostOf(pipeline);
  return PipelinePlanner::Planning{
      .cost = cost,
      .plan = [pipeline = std::move(pipeline), choice = request.choice()](
                  CancelCheck cancelled) -> absl::StatusOr<std::shared_ptr<const RunnablePlan>> {
        ASSIGN_OR_RETURN(auto planned, PlanPipeline(pipeline, choice, cancelled));
        return MakeRunnable(std::move(planned));
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

absl::StatusOr<v1::StartPipelineRequest> PipelinePlanner::Resolve(
    v1::StartPipelineRequest request) const {
  if (request.pipeline_source_case() == v1::StartPipelineRequest::kPipeline) {
    ASSIGN_OR_RETURN(const Registered<PipelineRecord> pipeline,
                     catalog_.pipelines.Get(request.pipeline()));
    *request.mutable_inline_pipeline() = pipeline.value->spec;
  }
  if (request.has_inline_layers()) {
    RETURN_IF_ERROR(ResolveMeshes(catalog_, *request.mutable_inline_layers()));
  } else if (request.has_inline_pipeline()) {
    RETURN_IF_ERROR(ResolveMeshes(catalog_, *request.mutable_inline_pipeline()));
  }
  return request;
}

absl::StatusOr<v1::PipelinePlan> PipelinePlanner::Plan(Planning& planning,
                                                       CancelCheck cancelled) const {
  RETURN_IF_ERROR(CheckWanted(cancelled));
  const absl::Duration begin = clock_.Monotonic();
  ASSIGN_OR_RETURN(const std::shared_ptr<const RunnablePlan> planned, planning.plan(cancelled));
  v1::PipelinePlan summary = planned->Summary();
  summary.set_plan_seconds(absl::ToDoubleSeconds(clock_.Monotonic() - begin));
  return summary;
}

}  // namespace crossmesh
