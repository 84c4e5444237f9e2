// Lower bounds of the time of a rank that has several stages.

#pragma once

#include "common/base/byte_count.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace crossmesh {

// One of its stages. Ways, round trip and bytes are those of the smallest microbatch, ops those of
// the largest one.
struct SharedStage {
  double head = 0, gap = 0, tail = 0, head_pace = 0, tail_pace = 0;  // as PipelineWays has them
  double round_trip = 0;  // from the begin of the forward op to the end of the backward op
  double forward = 0;
  double backward = 0;
  double weights = 0;        // of the gradient of the weights, where it is an op of its own
  ByteCount backward_bytes;  // held to the end of the backward op
  ByteCount weights_bytes;   // held to the end of the gradient of the weights
  double least_weights = 0;  // of the smallest microbatch

  ByteCount bytes() const { return backward_bytes + weights_bytes; }
};

struct SharedRank {
  std::vector<SharedStage> stages;
  std::optional<ByteCount> room;  // for activations; nothing: no limit
  int32_t microbatches = 0;
  double work = 0;         // of all ops
  bool is_split = false;   // have gradients of the weights ops of their own?
  bool is_uniform = true;  // are all microbatches of one size?
};

// Until the first gradient is back the rank can only do forward ops of microbatches that have come
// and that its memory holds, and after its last forward op only backward ops of those that it
// holds: it idles for the rest of both. Cost: ops, times their logarithm, times stages.
double RampsOfSharedRank(const SharedRank& rank);

// Each microbatch of each stage holds its activations for a round trip, and all of them share the
// memory. 0 where it has no limit. Cost: linear in stages.
double WindowOfSharedRank(const SharedRank& rank);

}  // namespace crossmesh
