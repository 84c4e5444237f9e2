#pragma once

#include "tests/standin/m2n/reshard_record.h"

#include <cstddef>
#include <vector>

namespace crossmesh {

// Contiguous bytes that a rank sends or receives.
struct ReshardMessage {
  int peer = 0;
  std::byte* memory = nullptr;
  size_t bytes = 0;
  bool is_sent = false;
};

// The most parts of the other side that one part meets.
int PartsMet(const RecordedSide& side, const RecordedSide& other);

// Appends what a rank sends and receives for a tensor, in an order that both ends have. Copies of
// the destination are dealt to those of the source, as the library does.
void AppendMessages(const RecordedReshard& reshard, int rank,
                    std::vector<ReshardMessage>& messages);

}  // namespace crossmesh
