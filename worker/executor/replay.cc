#include "worker/executor/replay.h"

namespace crossmesh {

TaskSpec TaskOf(const ReplaySpec& spec, const ReplaySpec::Buffer& buffer) {
  TaskSpec task{.key = spec.key.OfInstance(spec.first_instance),
                .token_high = spec.token_high,
                .token_low = spec.token_low,
                .part = spec.part,
                .sources = buffer.sources,
                .destinations = buffer.destinations,
                .peers = spec.peers,
                .peer_of_device = spec.peer_of_device,
                .checksums = spec.checksums,
                .deadline = absl::InfiniteDuration(),
                .stall_limit = spec.stall_limit,
                .leaves_own = spec.leaves_own,
                .receivers_say_ready = true};
  for (const auto& [device, tiles] : buffer.sources) task.awaited_sources.insert(device);
  return task;
}

}  // namespace crossmesh
