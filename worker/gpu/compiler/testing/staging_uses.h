#pragma once

#include "worker/gpu/compiler/compiled_part.h"

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// The streams of a GPU that runs a compiled part.
enum class StepStream : uint8_t { kPack, kWire, kUnpack };

// What a stream does in a step, by index.
struct StreamStep {
  StepStream stream = StepStream::kPack;
  int32_t step = 0;
};

// Which tenant has which place of a compiled part's staging, and from when until when, found from
// the compiled part alone: what is packed or received at an offset is there for what is sent or
// unpacked from it until the next one comes.
struct StagingUses {
  struct Tenant {
    int64_t offset = 0;
    int64_t bytes = 0;
    StreamStep written;
    std::vector<StreamStep> read;
  };

  std::vector<Tenant> tenants;  // as they come, step by step
  // Indices of tenants, by index of a pack, receive, send, broadcast or unpack.
  std::vector<int32_t> of_pack;
  std::vector<int32_t> of_receive;
  std::vector<int32_t> of_send;
  std::vector<int32_t> of_broadcast;
  std::vector<int32_t> of_unpack;
};

// Internal when a place is at no multiple of 256 or outside of the staging, or when what is sent or
// unpacked from a place is not what was put there.
absl::StatusOr<StagingUses> FindStagingUses(const CompiledPart& compiled);

}  // namespace crossmesh
