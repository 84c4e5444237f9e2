#include "planner/pipeline/planning/edge_plans.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/mesh/manifest.h"
#include "common/plan/proof.h"
#include "common/plan/tensor_table.h"
#include "planner/pipeline/planning/microbatch_sizes.h"
#include "planner/reshard/plan_reshard.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using Edge = PipelineDescription::Edge;
using Tensor = PipelineDescription::Tensor;

// The placement of that layout, added if it is new.
int32_t PlacementOf(const Mesh& mesh, const Layout& layout, std::vector<Placement>& placements) {
  const auto found = std::ranges::find(placements, layout, &Placement::layout);
  const auto index = static_cast<int32_t>(found - placements.begin());
  if (found == placements.end()) placements.push_back({.mesh = mesh, .layout = layout});
  return index;
}

absl::Status InEdge(const Edge& edge, bool is_forward, const absl::Status& status) {
  return At(absl::StrCat("edge from stage ", edge.from, " to ", edge.to, ", ",
                         is_forward ? "forward" : "backward"),
            status);
}

class EdgePlanner {
 public:
  EdgePlanner(const PipelineDescription& pipeline, CancelCheck cancelled, int64_t hops_max)
      : pipeline_(pipeline),
        cancelled_(cancelled),
        hops_max_(hops_max),
        topology_(pipeline.topology.value_or(Topology())) {}

  absl::StatusOr<std::vector<EdgePlan>> PlanAll() && {
    const std::vector<MicrobatchSize> sizes = SizesOf(pipeline_.samples);
    for (size_t e = 0; e < pipeline_.edges.size(); ++e) {
      const Edge& edge = pipeline_.edges[e];
      // Within a rank nothing moves.
      if (pipeline_.stages[edge.from].rank == pipeline_.stages[edge.to].rank) continue;
      for (const TransferIndex transfer :
           {static_cast<TransferIndex>(2 * e), static_cast<TransferIndex>(2 * e + 1)}) {
        for (const MicrobatchSize& size : sizes) {
          EdgePlan& plan = plans_.emplace_back();
          plan.transfer = transfer;
          plan.samples = size.samples;
          RETURN_IF_ERROR(InEdge(edge, OpTable::IsForward(transfer), PlanOne(edge, plan)));
        }
      }
    }
    return std::move(plans_);
  }

 private:
  absl::Status PlanOne(const Edge& edge, EdgePlan& plan) {
    const bool is_forward = OpTable::IsForward(plan.transfer);
    if (!edge.tensors.empty()) {
      ASSIGN_OR_RETURN(const TensorTable tensors, TensorsOf(edge, is_forward, plan.samples));
      plan.sender_bytes = FullestDevice(tensors, Side::kSource);
      plan.receiver_bytes = FullestDevice(tensors, Side::kDestination);
      ASSIGN_OR_RETURN(Plan made,
                       PlanReshard({.tensors = std::make_shared<const TensorTable>(tensors),
                                    .topology = topology_},
                                   cancelled_));
      hops_ += std::ssize(made.hops());
      if (hops_ > hops_max_) {
        return absl::ResourceExhaustedError(
            absl::StrCat("hops of this edge and those before it: expected at most ", hops_max_,
                         " together, found ", hops_));
      }
      RETURN_IF_ERROR(Prove(made, ProofLimits(), cancelled_).status());
      plan.seconds = made.figures().predicted_seconds;
      plan.plan = std::make_shared<const Plan>(std::move(made));
    }
    // A time given by hand, such as a measured one, goes before the prediction; the plan stays the
    // same.
    const std::optional<double>& given = is_forward ? edge.forward_seconds : edge.backward_seconds;
    if (given) {
      plan.seconds = *given * static_cast<double>(plan.samples) /
                     static_cast<double>(pipeline_.samples.front());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<TensorTable> TensorsOf(const Edge& edge, bool is_forward, int64_t samples) const {
    const Mesh& near = MeshOf(edge.from);
    const Mesh& far = MeshOf(edge.to);
    TensorTable::Spec spec;
    std::vector<TensorSpec> tensors;
    for (const Tensor& tensor : edge.tensors) {
      ASSIGN_OR_RETURN(tensors.emplace_back(), TensorOfSize(tensor, samples));
      // Gradients go back between the same layouts: source and destination change places.
      const int32_t source = is_forward ? PlacementOf(near, tensor.source, spec.sources)
                                        : PlacementOf(far, tensor.destination, spec.sources);
      const int32_t destination = is_forward
                                      ? PlacementOf(far, tensor.destination, spec.destinations)
                                      : PlacementOf(near, tensor.source, spec.destinations);
      const TensorGroup group = {.shape = tensors.back().shape,
                                 .type = tensors.back().type,
                                 .source = source,
                                 .destination = destination};
      const auto known = std::ranges::find(spec.groups, group);
      spec.group_of_tensor.push_back(static_cast<int32_t>(known - spec.groups.begin()));
      if (known == spec.groups.end()) spec.groups.push_back(group);
    }
    ASSIGN_OR_RETURN(const Manifest manifest, Manifest::Create(std::move(tensors)));
    spec.manifest = manifest.digest();
    return TensorTable::Create(std::move(spec));
  }

  const Mesh& MeshOf(StageIndex stage) const {
    return *pipeline_.ranks[pipeline_.stages[stage].rank].mesh;
  }

  static ByteCount FullestDevice(const TensorTable& tensors, Side side) {
    int64_t most = 0;
    for (DeviceRank d = 0; d < std::ssize(tensors.devices()); ++d) {
      most = std::max(most, tensors.BytesOf(side, d));
    }
    return ByteCount(most);
  }

  const PipelineDescription& pipeline_;
  const CancelCheck cancelled_;
  const int64_t hops_max_;
  const Topology topology_;
  std::vector<EdgePlan> plans_;
  int64_t hops_ = 0;  // of all of them
};

}  // namespace

absl::StatusOr<std::vector<EdgePlan>> PlanEdges(const PipelineDescription& pipeline,
                                                CancelCheck cancelled, int64_t hops_max) {
  return EdgePlanner(pipeline, cancelled, hops_max).PlanAll();
}

}  // namespace crossmesh
