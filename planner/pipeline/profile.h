#pragma once

#include "common/base/byte_count.h"
#include "planner/pipeline/op.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

// What a message holds while it passes: one direction of a host's NICs, or whatever a model says.
using PortIndex = int32_t;

// Rounded up.
inline ByteCount ScaledBytes(ByteCount bytes, double scale) {
  if (scale == 1) return bytes;
  return ByteCount(static_cast<int64_t>(std::ceil(static_cast<double>(bytes.value()) * scale)));
}

// What a stage takes for one microbatch.
struct StageProfile {
  RankIndex rank = 0;  // that computes it
  double forward_seconds = 0;
  double input_gradient_seconds = 0;
  double weight_gradient_seconds = 0;
  // Activations that the forward op leaves: those freed by the gradient of the input, and those
  // that the gradient of the weights needs as well.
  ByteCount input_gradient_bytes;
  ByteCount weight_gradient_bytes;
  ByteCount static_bytes;  // weights, optimizer state, workspace: whatever the schedule

  double backward_seconds() const { return input_gradient_seconds + weight_gradient_seconds; }
  double seconds() const { return forward_seconds + backward_seconds(); }
  ByteCount activation_bytes() const { return input_gradient_bytes + weight_gradient_bytes; }
  // Of a microbatch of that part of the largest one.
  ByteCount ActivationBytes(double scale) const {
    return ScaledBytes(input_gradient_bytes, scale) + ScaledBytes(weight_gradient_bytes, scale);
  }
  // What an op frees at its end.
  ByteCount FreedBy(OpKind kind, double scale = 1) const;
  double SecondsOf(OpKind kind) const;
  // Of a microbatch of that part of the largest one.
  StageProfile OfScale(double scale) const;

  friend bool operator==(const StageProfile&, const StageProfile&) = default;
};

// What passes between two stages for one microbatch: an activation forward, its gradient backward.
// Nothing passes between stages of one rank.
struct EdgeProfile {
  StageIndex from = 0;
  StageIndex to = 0;  // any later stage: models have skip connections
  double forward_seconds = 0;
  double backward_seconds = 0;
  ByteCount forward_bytes;
  ByteCount backward_bytes;
  // What the ends set aside for messages of both directions, where that is not the profile's number
  // of buffers for a transfer.
  std::optional<ByteCount> from_buffer_bytes;
  std::optional<ByteCount> to_buffer_bytes;
  // What a message holds under TransferModel::kPorts, ascending.
  std::vector<PortIndex> forward_ports;
  std::vector<PortIndex> backward_ports;

  friend bool operator==(const EdgeProfile&, const EdgeProfile&) = default;
};

// A forward op and a whole backward op of stages of one rank, computed as one.
struct PairProfile {
  StageIndex forward = 0;
  StageIndex backward = 0;
  double seconds = 0;  // at least those of either op; less than their sum where they overlap

  friend bool operator==(const PairProfile&, const PairProfile&) = default;
};

// That of these stages among pairs in ascending order; null where it has no time of its own. Cost:
// logarithmic.
const PairProfile* FindPair(std::span<const PairProfile> pairs, StageIndex forward,
                            StageIndex backward);

// What all schedules of a pipeline are judged by. Times are of any unit, the same everywhere; times
// and activations of stages and edges are those of the largest microbatch.
struct PipelineProfile {
  static constexpr PortIndex kPortsMax = 1 << 20;

  std::vector<StageProfile> stages;
  std::vector<EdgeProfile> edges;  // no two between the same stages
  // That have a time of their own, in ascending order of their stages. Others take that of both
  // ops: without a measured time nothing is known to overlap.
  std::vector<PairProfile> pairs;
  // The most bytes that a rank may hold, by rank; nothing: no limit.
  std::vector<std::optional<ByteCount>> rank_bytes_max;
  // Messages for which a transfer, that is an edge in one direction, sets memory aside at either
  // end.
  int32_t transfer_buffers = 1;
  // Of each microbatch, its part of the largest one's times and activations; empty: all are alike.
  std::vector<double> microbatch_scale;
  // So many microbatches, one after the other, are the parts of the same sequences: what a stage
  // computes for one of them needs the forward ops of those before it and the backward ops of those
  // after it.
  int32_t sequence_parts = 1;

  RankIndex ranks() const { return static_cast<RankIndex>(rank_bytes_max.size()); }
  bool passes(const EdgeProfile& edge) const {
    return stages[edge.from].rank != stages[edge.to].rank;
  }
  double SecondsOf(const Op& op) const;
  // Of two fused ops. Where their microbatches differ in size, they overlap as far as the
  // smaller one goes. Cost: that of FindPair.
  double SecondsOfPair(const Op& forward, const Op& backward) const;
  double ScaleOf(MicrobatchIndex m) const {
    return microbatch_scale.empty() ? 1 : microbatch_scale[m];
  }
  // The work of all microbatches, in units of the largest one's.
  double SumOfScales(int32_t microbatches) const;
  double LeastScale() const;
  // The same pipeline if all microbatches were of that part of the largest.
  PipelineProfile OfScale(double scale) const;

  friend bool operator==(const PipelineProfile&, const PipelineProfile&) = default;
};

// InvalidArgument, naming the stage, edge or rank: no stages; a rank out of range or without a
// stage; a time that is negative or not finite; a negative size; an edge that does not lead to a
// later stage, or is there twice; ports that are not ascending, from 0 to below kPortsMax; scales
// that are not above 0, with 1 the largest; sequences in less than one part; pairs of stages that
// are not on one rank, not in ascending order, or take less than either op.
absl::Status Validate(const PipelineProfile& profile);
// InvalidArgument when the profile has scales of another number of microbatches, or when so many
// are not the parts of whole sequences.
absl::Status CheckMicrobatches(const PipelineProfile& profile, int32_t microbatches);
// InvalidArgument when sequences are in parts.
absl::Status CheckWholeSequences(const PipelineProfile& profile);

}  // namespace crossmesh
