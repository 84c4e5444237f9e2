#pragma once

#include "common/base/byte_count.h"
#include "planner/pipeline/op_table.h"

#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

// The most that a rank holds at once.
struct RankMemory {
  ByteCount static_bytes;      // of its stages
  ByteCount buffer_bytes;      // for messages, at its ends of transfers
  ByteCount activation_bytes;  // at the peak
  Op peak;                     // the first op at which it is there

  ByteCount bytes() const { return static_bytes + buffer_bytes + activation_bytes; }

  friend bool operator==(const RankMemory&, const RankMemory&) = default;
};

// What each rank holds all the time: no activations yet. A transfer has room for the profile's
// number of messages at either end, or for what its edge says.
std::vector<RankMemory> FixedMemory(const PipelineProfile& profile);

// What that leaves each rank for activations, which may be less than nothing; nullopt: no limit.
std::vector<std::optional<ByteCount>> RoomForActivations(const PipelineProfile& profile);

// What each rank holds at its peak. Activations are there from the begin of the forward op to the
// end of the op that needs them last, so the order of the ops says it all: times don't matter.
// Cost: linear.
std::vector<RankMemory> PeakMemory(const OpTable& ops);

// ResourceExhausted, naming rank, op and bytes, when a rank holds more than it may.
absl::Status CheckMemory(const OpTable& ops, const std::vector<RankMemory>& memory);

}  // namespace crossmesh
