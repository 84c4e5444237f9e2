#pragma once

#include "common/plan/testing/random_source.h"
#include "worker/executor/task.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/compiler/testing/compiled_parts.h"
#include "worker/gpu/compiler/testing/staging_order.h"

#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

// Runs the compiled parts of all devices of a plan on host memory: each with its three streams,
// which do what they have next in a random order of those that the waits allow. Messages between
// two devices match in order, as do the broadcasts of a group, and a step's transfers end when all
// of them have been received, as with NCCL without buffers. For tests. Thread-compatible.
class CompiledPartRunner {
 public:
  // All must outlive the runner.
  CompiledPartRunner(const CompiledParts& compiled_parts, const TileMemory& memory);
  ~CompiledPartRunner();

  // Once, to the end of all compiled parts. Internal when they wait for each other for ever, or
  // when two ends of a message do not agree. Whether staging is used rightly is proven by itself
  // (staging_order.h).
  absl::Status Run(RandomSource& random);
  // Of a device, by its hashes.
  DeviceReport ReportOf(DeviceRank device) const;

 private:
  class Gpu;
  // A transfer that a device has begun.
  struct Begun {
    DeviceRank device = 0;
    CompiledPart::Transfer transfer;
  };
  struct Channel {
    std::deque<Begun> sends;
    std::deque<Begun> receives;
  };
  // The broadcasts that the devices of a group have begun.
  using Group = std::map<DeviceRank, std::deque<Begun>>;
  struct Choice {
    DeviceRank device = 0;
    StepStream stream = StepStream::kPack;
  };

  std::vector<Choice> Choices() const;
  absl::Status Do(const Choice& choice);
  absl::Status BeginTransfers(DeviceRank device);
  absl::Status Deliver(Channel& channel);
  absl::Status Broadcast(Group& group);
  absl::Status Move(const Begun& send, const Begun& receive);
  absl::Status CheckFinished() const;

  std::vector<std::unique_ptr<Gpu>> gpus_;                      // by rank
  std::map<std::pair<DeviceRank, DeviceRank>, Channel> wires_;  // by sender and receiver
  std::map<DeviceRank, Group> groups_;                          // by their first device
};

}  // namespace crossmesh
