#include "planner/pipeline/profile.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numeric>
#include <string>
#include <utility>

#include <absl/container/flat_hash_set.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

std::pair<StageIndex, StageIndex> KeyOf(const PairProfile& pair) {
  return {pair.forward, pair.backward};
}

absl::Status CheckNumbers(const std::string& name, std::initializer_list<double> times,
                          std::initializer_list<ByteCount> sizes) {
  for (const double time : times) {
    if (std::isfinite(time) && time >= 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, ": expected times from 0, found ", time));
  }
  for (const ByteCount bytes : sizes) {
    if (bytes >= ByteCount(0)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": expected sizes from 0, found ", bytes.value()));
  }
  return absl::OkStatus();
}

absl::Status CheckStages(const PipelineProfile& profile) {
  if (profile.stages.empty()) {
    return absl::InvalidArgumentError("pipeline: expected a stage, found none");
  }
  std::vector<bool> has_stage(profile.ranks(), false);
  for (size_t s = 0; s < profile.stages.size(); ++s) {
    const StageProfile& stage = profile.stages[s];
    const std::string name = absl::StrCat("stage ", s);
    if (stage.rank < 0 || stage.rank >= profile.ranks()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": expected a rank below ", profile.ranks(), ", found ", stage.rank));
    }
    has_stage[stage.rank] = true;
    RETURN_IF_ERROR(CheckNumbers(
        name, {stage.forward_seconds, stage.input_gradient_seconds, stage.weight_gradient_seconds},
        {stage.input_gradient_bytes, stage.weight_gradient_bytes, stage.static_bytes}));
  }
  for (RankIndex rank = 0; rank < profile.ranks(); ++rank) {
    if (has_stage[rank]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, ": expected a stage, found none"));
  }
  return absl::OkStatus();
}

absl::Status CheckPorts(const std::string& name, const std::vector<PortIndex>& ports) {
  PortIndex least = 0;
  for (const PortIndex port : ports) {
    // Ascending ports have no repeats, and the last one says how many there are.
    if (port < least || port >= PipelineProfile::kPortsMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": expected ports in ascending order, from ", least, " to below ",
                       PipelineProfile::kPortsMax, ", found ", port));
    }
    least = port + 1;
  }
  return absl::OkStatus();
}

absl::Status CheckEdges(const PipelineProfile& profile) {
  absl::flat_hash_set<std::pair<StageIndex, StageIndex>> known;
  for (const EdgeProfile& edge : profile.edges) {
    const std::string name = absl::StrCat("edge from stage ", edge.from, " to ", edge.to);
    if (edge.from < 0 || edge.from >= edge.to || edge.to >= std::ssize(profile.stages)) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, ": expected one of the ", profile.stages.size(), " stages and a later one"));
    }
    if (!known.emplace(edge.from, edge.to).second) {
      return absl::InvalidArgumentError(absl::StrCat(name, ": expected it once, found it again"));
    }
    RETURN_IF_ERROR(CheckNumbers(
        name, {edge.forward_seconds, edge.backward_seconds},
        {edge.forward_bytes, edge.backward_bytes, edge.from_buffer_bytes.value_or(ByteCount(0)),
         edge.to_buffer_bytes.value_or(ByteCount(0))}));
    RETURN_IF_ERROR(CheckPorts(name, edge.forward_ports));
    RETURN_IF_ERROR(CheckPorts(name, edge.backward_ports));
  }
  return absl::OkStatus();
}

absl::Status CheckPairs(const PipelineProfile& profile) {
  const auto stages = static_cast<StageIndex>(profile.stages.size());
  const PairProfile* before = nullptr;
  for (const PairProfile& pair : profile.pairs) {
    const std::string name =
        absl::StrCat("pair of stages ", pair.forward, " and ", pair.backward, ": ");
    if (std::min(pair.forward, pair.backward) < 0 ||
        std::max(pair.forward, pair.backward) >= stages ||
        profile.stages[pair.forward].rank != profile.stages[pair.backward].rank) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, "expected two of the ", stages, " stages, on one rank"));
    }
    if (before != nullptr && KeyOf(*before) >= KeyOf(pair)) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, "expected each pair once, in ascending order, found it after that of stages ",
          before->forward, " and ", before->backward));
    }
    before = &pair;
    // Sums and scales of times are rounded.
    constexpr double kTolerance = 1e-9;
    const double least = std::max(profile.stages[pair.forward].forward_seconds,
                                  profile.stages[pair.backward].backward_seconds());
    if (std::isfinite(pair.seconds) && pair.seconds >= least * (1 - kTolerance)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        name, "expected at least the time of either op, ", least, ", found ", pair.seconds));
  }
  return absl::OkStatus();
}

}  // namespace

ByteCount StageProfile::FreedBy(OpKind kind, double scale) const {
  switch (kind) {
    case OpKind::kForward:
      return ByteCount(0);
    case OpKind::kBackward:
      return ActivationBytes(scale);
    case OpKind::kInputGradient:
      return ScaledBytes(input_gradient_bytes, scale);
    case OpKind::kWeightGradient:
      return ScaledBytes(weight_gradient_bytes, scale);
  }
  return ByteCount(0);
}

double StageProfile::SecondsOf(OpKind kind) const {
  switch (kind) {
    case OpKind::kForward:
      return forward_seconds;
    case OpKind::kBackward:
      return backward_seconds();
    case OpKind::kInputGradient:
      return input_gradient_seconds;
    case OpKind::kWeightGradient:
      return weight_gradient_seconds;
  }
  return 0;
}

double PipelineProfile::SecondsOf(const Op& op) const {
  return stages[op.stage].SecondsOf(op.kind) * ScaleOf(op.microbatch);
}

const PairProfile* FindPair(std::span<const PairProfile> pairs, StageIndex forward,
                            StageIndex backward) {
  const std::pair key(forward, backward);
  const auto found = std::ranges::lower_bound(pairs, key, {}, KeyOf);
  return found != pairs.end() && KeyOf(*found) == key ? &*found : nullptr;
}

double PipelineProfile::SecondsOfPair(const Op& forward, const Op& backward) const {
  const double sum = SecondsOf(forward) + SecondsOf(backward);
  const PairProfile* pair = FindPair(pairs, forward.stage, backward.stage);
  if (pair == nullptr || backward.kind != OpKind::kBackward) return sum;
  const double overlap = stages[forward.stage].forward_seconds +
                         stages[backward.stage].backward_seconds() - pair->seconds;
  return sum - std::min(ScaleOf(forward.microbatch), ScaleOf(backward.microbatch)) * overlap;
}

double PipelineProfile::SumOfScales(int32_t microbatches) const {
  if (microbatch_scale.empty()) return microbatches;
  return std::accumulate(microbatch_scale.begin(), microbatch_scale.end(), 0.0);
}

double PipelineProfile::LeastScale() const {
  return microbatch_scale.empty() ? 1 : std::ranges::min(microbatch_scale);
}

StageProfile StageProfile::OfScale(double scale) const {
  StageProfile scaled = *this;
  scaled.forward_seconds *= scale;
  scaled.input_gradient_seconds *= scale;
  scaled.weight_gradient_seconds *= scale;
  scaled.input_gradient_bytes = ScaledBytes(input_gradient_bytes, scale);
  scaled.weight_gradient_bytes = ScaledBytes(weight_gradient_bytes, scale);
  return scaled;
}

PipelineProfile PipelineProfile::OfScale(double scale) const {
  PipelineProfile scaled = *this;
  // All microbatches are of that size now.
  scaled.microbatch_scale.clear();
  for (StageProfile& stage : scaled.stages) stage = stage.OfScale(scale);
  for (EdgeProfile& edge : scaled.edges) {
    edge.forward_seconds *= scale;
    edge.backward_seconds *= scale;
  }
  for (PairProfile& pair : scaled.pairs) pair.seconds *= scale;
  return scaled;
}

absl::Status CheckMicrobatches(const PipelineProfile& profile, int32_t microbatches) {
  const auto scales = std::ssize(profile.microbatch_scale);
  if (scales > 0 && scales != microbatches) {
    return absl::InvalidArgumentError(absl::StrCat("pipeline: expected scales of ", microbatches,
                                                   " microbatches, found ", scales));
  }
  if (microbatches % profile.sequence_parts == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("pipeline: expected the ", profile.sequence_parts,
                                                 " parts of each sequence as microbatches, found ",
                                                 microbatches));
}

absl::Status CheckWholeSequences(const PipelineProfile& profile) {
  if (profile.sequence_parts == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("expected whole sequences, found them in ", profile.sequence_parts, " parts"));
}

absl::Status Validate(const PipelineProfile& profile) {
  RETURN_IF_ERROR(CheckStages(profile));
  RETURN_IF_ERROR(CheckEdges(profile));
  RETURN_IF_ERROR(CheckPairs(profile));
  if (profile.transfer_buffers < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pipeline: expected at least 1 buffer for a transfer, found ", profile.transfer_buffers));
  }
  if (profile.sequence_parts < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pipeline: expected sequences in 1 part or more, found ", profile.sequence_parts));
  }
  if (profile.microbatch_scale.empty()) return absl::OkStatus();
  for (const double scale : profile.microbatch_scale) {
    if (scale > 0 && scale <= 1) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "pipeline: expected scales of microbatches above 0, at most 1, found ", scale));
  }
  const double largest = std::ranges::max(profile.microbatch_scale);
  // Profiles state costs of the largest microbatch: another largest scale would change them all.
  if (largest == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("pipeline: expected 1 as the largest scale of a microbatch, found ", largest));
}

}  // namespace crossmesh
