#pragma once

#include "planner/network/gpu_network.h"

#include <cstdint>

namespace crossmesh {

// Over how many channels NCCL sends and receives what the GPUs of one communicator exchange. Each
// channel is a thread block of either GPU. Read out of NCCL 2.30.7: paths.cc
// (ncclTopoComputeP2pChannels), enqueue.cc (scheduleP2pTasksToPlan, addP2pToPlan), channel.h.
// Immutable value.
class MessageChannels {
 public:
  // Of a communicator of all devices of this network.
  explicit MessageChannels(const GpuNetwork& network);

  // Of one message.
  int64_t Of(int64_t bytes) const;

  // Of all messages that a GPU sends at once by its links, or receives. Between GPUs of several
  // hosts these are few: peers of one host have the same channels there, as many as the slowest
  // way to any peer of the communicator needs.
  int64_t by_links() const { return by_links_; }

 private:
  int64_t least_ = 1;     // of a message that is long enough for them
  int64_t most_ = 1;      // which messages get whose parts would be longer than part_max_
  int64_t part_min_ = 1;  // bytes of a message on one channel
  int64_t part_max_ = 1;
  int64_t by_links_ = 1;
};

}  // namespace crossmesh
