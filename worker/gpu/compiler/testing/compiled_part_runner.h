#pragma once

#include "common/plan/testing/random_source.h"
#include "worker/executor/task.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/compiler/testing/compiled_parts.h"
#include "worker/gpu/compiler/testing/staging_uses.h"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Runs the compiled parts of all devices of a plan on host memory: each with its three streams,
// which do what they have next in a random order of those that the waits allow. Messages between
// two devices match in order, as do the broadcasts of a group, and a step's transfers end when all
// of them have been received, as with NCCL without buffers. For tests. Thread-compatible.
class CompiledPartRunner {
 public:
  // What FindStagingUses refuses. All must outlive the runner.
  static absl::StatusOr<std::unique_ptr<CompiledPartRunner>> Create(
      const CompiledParts& compiled_parts, const TileMemory& memory);
  ~CompiledPartRunner();

  // Once, to the end of all compiled parts. Internal when they wait for each other for ever, when
  // two ends of a message do not agree, or when staging is used wrongly (host_staging.h).
  absl::Status Run(RandomSource& random);
  // Of a device, by its hashes.
  DeviceReport ReportOf(DeviceRank device) const;

 private:
  class Gpu;
  // A transfer that a device has begun, by index into its compiled part's list.
  struct Begun {
    DeviceRank device = 0;
    int64_t index = 0;
  };
  struct Channel {
    std::deque<Begun> sends;
    std::deque<Begun> receives;
  };
  // The broadcasts that the devices of a group have begun.
  using Group = std::map<DeviceRank, std::deque<int64_t>>;
  struct Choice {
    DeviceRank device = 0;
    StepStream stream = StepStream::kPack;
  };

  CompiledPartRunner();
  std::vector<Choice> Choices() const;
  absl::Status Do(const Choice& choice);
  absl::Status BeginTransfers(DeviceRank device);
  absl::Status Deliver(Channel& channel);
  absl::Status Broadcast(Group& group);
  absl::Status DeliverToAll(std::span<const Begun> ends);
  absl::Status CheckFinished() const;

  std::vector<std::unique_ptr<Gpu>> gpus_;                      // by rank
  std::map<std::pair<DeviceRank, DeviceRank>, Channel> wires_;  // by sender and receiver
  std::map<DeviceRank, Group> groups_;                          // by their first device
};

}  // namespace crossmesh
