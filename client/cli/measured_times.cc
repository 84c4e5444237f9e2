#include "client/cli/measured_times.h"

#include "common/base/status_macros.h"

#include <cstdint>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::StatusOr<double> SecondsOf(const v1::PipelineMeasurement& measurement, int32_t edge,
                                 bool backward, int64_t samples) {
  for (const v1::PipelineMeasurement::Transfer& transfer : measurement.transfers()) {
    if (transfer.edge() == edge && transfer.backward() == backward &&
        transfer.samples() == samples) {
      return transfer.transfer_seconds();
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("edges[", edge, "]: expected a measured time of microbatches of ", samples,
                   " samples ", backward ? "backward" : "forward", ", found none"));
}

}  // namespace

absl::Status SetMeasuredTimes(const v1::PipelineMeasurement& measurement, v1::PipelineSpec& spec) {
  if (spec.microbatches().empty()) {
    return absl::InvalidArgumentError("microbatches: expected at least one, found none");
  }
  const int64_t samples = spec.microbatches(0).samples();
  for (int32_t i = 0; i < spec.edges_size(); ++i) {
    v1::PipelineEdge& edge = *spec.mutable_edges(i);
    const int32_t stages = spec.stages_size();
    if (edge.from() < 0 || edge.from() >= stages || edge.to() < 0 || edge.to() >= stages) {
      return absl::InvalidArgumentError(absl::StrCat("edges[", i, "]: expected stages below ",
                                                     stages, ", found ", edge.from(), " and ",
                                                     edge.to()));
    }
    // Nothing passes within a rank.
    if (spec.stages(edge.from()).rank() == spec.stages(edge.to()).rank()) continue;
    ASSIGN_OR_RETURN(const double forward, SecondsOf(measurement, i, false, samples));
    ASSIGN_OR_RETURN(const double backward, SecondsOf(measurement, i, true, samples));
    edge.set_forward_seconds(forward);
    edge.set_backward_seconds(backward);
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
