#include "client/cli/measured_times.h"

#include "common/base/status_macros.h"
#include "planner/pipeline/op.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

using StagePair = std::pair<StageIndex, StageIndex>;  // of a forward and of a backward op

// Of ops and pairs of microbatches of the first size.
struct MeasuredSeconds {
  absl::btree_map<std::pair<StageIndex, OpKind>, std::vector<double>> ops;
  absl::btree_map<StagePair, std::vector<double>> pairs;
  // Whose ops were in pairs, of any size: how long they take alone may not be known.
  std::set<StageIndex> forward_in_pairs;
  std::set<StageIndex> backward_in_pairs;
};

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

// One op, or two that are fused.
absl::StatusOr<std::vector<Op>> ReadStep(const std::string& name, size_t microbatches) {
  std::vector<Op> step;
  for (const absl::string_view text : absl::StrSplit(name, ' ')) {
    ASSIGN_OR_RETURN(const Op op, ParseOp(text));
    if (op.microbatch >= static_cast<int64_t>(microbatches)) {
      return absl::InvalidArgumentError(absl::StrCat("measurement: expected microbatches below ",
                                                     microbatches, ", found op ", text));
    }
    step.push_back(op);
  }
  return step;
}

void AddStep(const std::vector<Op>& step, bool is_of_first_size, double seconds,
             MeasuredSeconds& measured) {
  const Op &first = step.front(), &last = step.back();
  const bool is_pair = step.size() > 1;
  if (is_pair) {
    measured.forward_in_pairs.insert(first.stage);
    measured.backward_in_pairs.insert(last.stage);
  }
  if (!is_of_first_size) return;
  if (!is_pair) {
    measured.ops[{first.stage, first.kind}].push_back(seconds);
  } else if (last.kind == OpKind::kBackward) {
    measured.pairs[{first.stage, last.stage}].push_back(seconds);
  }
}

absl::StatusOr<MeasuredSeconds> ReadOps(const v1::PipelineRun& run, const v1::PipelineSpec& spec) {
  const std::vector<bool> is_of_first_size = IsOfFirstSize(spec);
  MeasuredSeconds measured;
  for (const v1::PipelineMeasurement::Rank& rank : run.measurement().ranks()) {
    const v1::PipelineTimes& times = rank.ops();
    for (int i = 0; i < std::min({times.name_size(), times.begin_size(), times.end_size()}); ++i) {
      ASSIGN_OR_RETURN(const std::vector<Op> step,
                       ReadStep(times.name(i), is_of_first_size.size()));
      const bool are_of_first_size =
          std::ranges::all_of(step, [&](const Op& op) { return is_of_first_size[op.microbatch]; });
      AddStep(step, are_of_first_size, times.end(i) - times.begin(i), measured);
    }
  }
  return measured;
}

// As a specification has them, never negative: hosts' clocks may be set back.
double MedianOf(std::vector<double>& seconds) {
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::ranges::nth_element(seconds, middle);
  return std::max(0.0, *middle);
}

absl::Status SetOpTimes(int32_t index, MeasuredSeconds& measured, v1::PipelineStage& stage) {
  const auto find = [&](OpKind kind) -> std::optional<double> {
    const auto found = measured.ops.find({index, kind});
    if (found == measured.ops.end()) return std::nullopt;
    return MedianOf(found->second);
  };
  std::optional<double> forward = find(OpKind::kForward);
  const std::optional<double> whole = find(OpKind::kBackward);
  std::optional<double> input = find(OpKind::kInputGradient);
  std::optional<double> weight = find(OpKind::kWeightGradient);
  if (whole.has_value()) {
    const double expected = stage.input_gradient_seconds() + stage.weight_gradient_seconds();
    input = *whole * (expected > 0 ? stage.input_gradient_seconds() / expected : 0.5);
    weight = *whole - *input;
  }
  // What was computed in pairs alone is as it was given.
  if (!forward.has_value() && measured.forward_in_pairs.contains(index)) {
    forward = stage.forward_seconds();
  }
  if (!input.has_value() && measured.backward_in_pairs.contains(index)) {
    input = stage.input_gradient_seconds();
    weight = stage.weight_gradient_seconds();
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

v1::PipelinePair& PairOf(const StagePair& stages, v1::PipelineSpec& spec) {
  for (v1::PipelinePair& pair : *spec.mutable_pairs()) {
    if (StagePair(pair.forward_stage(), pair.backward_stage()) == stages) return pair;
  }
  v1::PipelinePair& added = *spec.add_pairs();
  added.set_forward_stage(stages.first);
  added.set_backward_stage(stages.second);
  return added;
}

absl::Status SetPairTimes(MeasuredSeconds& measured, v1::PipelineSpec& spec) {
  for (auto& [stages, seconds] : measured.pairs) {
    PairOf(stages, spec).set_seconds(MedianOf(seconds));
  }
  for (v1::PipelinePair& pair : *spec.mutable_pairs()) {
    const int32_t stages = spec.stages_size();
    if (std::min(pair.forward_stage(), pair.backward_stage()) < 0 ||
        std::max(pair.forward_stage(), pair.backward_stage()) >= stages) {
      return absl::InvalidArgumentError(absl::StrCat("pairs: expected stages below ", stages,
                                                     ", found ", pair.forward_stage(), " and ",
                                                     pair.backward_stage()));
    }
    const v1::PipelineStage& forward = spec.stages(pair.forward_stage());
    const v1::PipelineStage& backward = spec.stages(pair.backward_stage());
    // As a specification has them: a pair takes at least as long as either op.
    pair.set_seconds(
        std::max({pair.seconds(), forward.forward_seconds(),
                  backward.input_gradient_seconds() + backward.weight_gradient_seconds()}));
  }
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
  ASSIGN_OR_RETURN(MeasuredSeconds measured, ReadOps(run, spec));
  for (int32_t i = 0; i < spec.stages_size(); ++i) {
    RETURN_IF_ERROR(SetOpTimes(i, measured, *spec.mutable_stages(i)));
  }
  return SetPairTimes(measured, spec);
}

}  // namespace crossmesh
