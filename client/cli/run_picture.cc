#include "client/cli/run_picture.h"

#include "client/cli/measured_timeline.h"
#include "client/cli/pipeline_picture.h"
#include "client/client.h"
#include "common/base/status_macros.h"
#include "planner/pipeline/planning/pipeline_codec.h"
#include "planner/pipeline/planning/planned_pipeline.h"

#include <memory>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::StatusOr<v1::PipelineSpec> Described(Client& client, v1::PipelineSpec spec) {
  for (v1::PipelineRank& rank : *spec.mutable_ranks()) {
    if (rank.mesh().empty()) continue;
    ASSIGN_OR_RETURN(v1::GetMeshResponse found, client.GetMesh(rank.mesh()));
    *rank.mutable_inline_mesh() = std::move(*found.mutable_mesh());
  }
  if (!spec.has_topology()) {
    ASSIGN_OR_RETURN(v1::Network network, client.GetNetwork());
    *spec.mutable_topology() = std::move(*network.mutable_topology());
  }
  return spec;
}

absl::StatusOr<std::string> MeasuredPicture(const v1::PipelineSpec& spec,
                                            const v1::PipelineChoice& choice,
                                            const v1::PipelineRun& run) {
  if (!run.has_measurement()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "pipeline run ", run.id(), ": expected a complete iteration to draw, found ", "none"));
  }
  if (run.measurement().ranks().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("pipeline run ", run.id(), ": expected the times of its ops to draw, found ",
                     "none: an iteration has too many of them to be told one by one"));
  }
  ASSIGN_OR_RETURN(PipelineDescription description,
                   FromProto(spec, std::vector<std::shared_ptr<const Mesh>>(spec.ranks_size())));
  ASSIGN_OR_RETURN(const auto planned, PlanPipeline(std::move(description), choice));
  const std::string id = planned->id.ToString();
  if (id != run.plan().id()) {
    return absl::FailedPreconditionError(
        absl::StrCat("pipeline run ", run.id(), ": expected plan ", run.plan().id(),
                     " to draw, found ", id, ": meshes or the network have changed since"));
  }
  ASSIGN_OR_RETURN(const PipelineTimeline measured,
                   MeasuredTimeline(run.measurement(), *planned->ops));
  return PipelinePicture({{.title = planned->schedule_name,
                           .ops = planned->ops.get(),
                           .run = &planned->run,
                           .measured = &measured}});
}

}  // namespace crossmesh
