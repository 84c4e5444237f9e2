#include "controller/pipeline/profile.h"

#include "common/base/status_macros.h"

#include <cmath>
#include <initializer_list>
#include <string>
#include <utility>

#include <absl/container/flat_hash_set.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

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

}  // namespace

ByteCount StageProfile::FreedBy(OpKind kind) const {
  switch (kind) {
    case OpKind::kForward:
      return ByteCount(0);
    case OpKind::kBackward:
      return activation_bytes();
    case OpKind::kInputGradient:
      return input_gradient_bytes;
    case OpKind::kWeightGradient:
      return weight_gradient_bytes;
  }
  return ByteCount(0);
}

double PipelineProfile::SecondsOf(const Op& op) const {
  const StageProfile& stage = stages[op.stage];
  switch (op.kind) {
    case OpKind::kForward:
      return stage.forward_seconds;
    case OpKind::kBackward:
      return stage.backward_seconds();
    case OpKind::kInputGradient:
      return stage.input_gradient_seconds;
    case OpKind::kWeightGradient:
      return stage.weight_gradient_seconds;
  }
  return 0;
}

absl::Status Validate(const PipelineProfile& profile) {
  RETURN_IF_ERROR(CheckStages(profile));
  RETURN_IF_ERROR(CheckEdges(profile));
  if (profile.channel_buffers < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "pipeline: expected at least 1 buffer for a channel, found ", profile.channel_buffers));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
