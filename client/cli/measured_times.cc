#include "client/cli/measured_times.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/op.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using SecondsOfOps = absl::btree_map<std::pair<StageIndex, OpKind>, std::vector<double>>;

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

absl::Status SetTransferTimes(const v1::PipelineMeasurement& measurement, v1::PipelineSpec& spec) {
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

// Microbatches of the first size, which times in a specification are of.
std::vector<bool> IsOfFirstSize(const v1::PipelineSpec& spec) {
  std::vector<bool> is_of_first_size;
  for (const v1::PipelineMicrobatches& some : spec.microbatches()) {
    const bool is_first = some.samples() == spec.microbatches(0).samples();
    is_of_first_size.insert(is_of_first_size.end(), some.count(), is_first);
  }
  return is_of_first_size;
}

absl::StatusOr<SecondsOfOps> ReadOps(const v1::PipelineRun& run, const v1::PipelineSpec& spec) {
  const std::vector<bool> is_of_first_size = IsOfFirstSize(spec);
  SecondsOfOps seconds;
  for (const v1::PipelineMeasurement::Rank& rank : run.measurement().ranks()) {
    const v1::PipelineTimes& times = rank.ops();
    for (int i = 0; i < std::min({times.name_size(), times.begin_size(), times.end_size()}); ++i) {
      ASSIGN_OR_RETURN(const Op op, ParseOp(times.name(i)));
      if (op.microbatch >= std::ssize(is_of_first_size)) {
        return absl::InvalidArgumentError(absl::StrCat("measurement: expected microbatches below ",
                                                       is_of_first_size.size(), ", found op ",
                                                       times.name(i)));
      }
      if (!is_of_first_size[op.microbatch]) continue;
      seconds[{op.stage, op.kind}].push_back(times.end(i) - times.begin(i));
    }
  }
  return seconds;
}

// As a specification has them, never negative: hosts' clocks may be set back.
double MedianOf(std::vector<double>& seconds) {
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::ranges::nth_element(seconds, middle);
  return std::max(0.0, *middle);
}

absl::Status SetOpTimes(int32_t index, SecondsOfOps& measured, v1::PipelineStage& stage) {
  const auto find = [&](OpKind kind) -> std::optional<double> {
    const auto found = measured.find({index, kind});
    if (found == measured.end()) return std::nullopt;
    return MedianOf(found->second);
  };
  const std::optional<double> forward = find(OpKind::kForward), whole = find(OpKind::kBackward);
  std::optional<double> input = find(OpKind::kInputGradient);
  std::optional<double> weight = find(OpKind::kWeightGradient);
  if (whole.has_value()) {
    const double expected = stage.input_gradient_seconds() + stage.weight_gradient_seconds();
    input = *whole * (expected > 0 ? stage.input_gradient_seconds() / expected : 0.5);
    weight = *whole - *input;
  }
  if (!forward.has_value() || !input.has_value() || !weight.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("stages[", index, "]: expected measured times of its ",
                     forward.has_value() ? "backward" : "forward", " ops, found none"));
  }
  stage.set_forward_seconds(*forward);
  stage.set_input_gradient_seconds(*input);
  stage.set_weight_gradient_seconds(*weight);
  return absl::OkStatus();
}

}  // namespace

absl::Status SetMeasuredTimes(const v1::PipelineRun& run, v1::PipelineSpec& spec) {
  if (spec.microbatches().empty()) {
    return absl::InvalidArgumentError("microbatches: expected at least one, found none");
  }
  RETURN_IF_ERROR(SetTransferTimes(run.measurement(), spec));
  // Ops of a rehearsal take the time that the specification says.
  if (run.rehearsal()) return absl::OkStatus();
  ASSIGN_OR_RETURN(SecondsOfOps measured, ReadOps(run, spec));
  for (int32_t i = 0; i < spec.stages_size(); ++i) {
    RETURN_IF_ERROR(SetOpTimes(i, measured, *spec.mutable_stages(i)));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
