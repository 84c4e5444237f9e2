#pragma once

#include "worker/executor/replay.h"

#include <cstdint>

#include <absl/status/status.h>

namespace crossmesh {

// Runs a part again and again without allocating or connecting anew: the transfers of a program,
// once for each message. The receivers of an instance say when they have memory for it, and only
// then its senders send; until both have, no worker is blamed for waiting, but a peer that answers
// no question for the stall limit is. How long an instance may take has no bound here: its owner
// ends it by StopReplays. Confined to the loop.
class PartReplayer {
 public:
  virtual ~PartReplayer() = default;

  // Connects, and takes all memory that instances need. Those that were stopped can be started
  // again once they are stopped at every worker. AlreadyExists when such replays run;
  // InvalidArgument as Executor::Start, without buffers, and for a part that computes scales.
  // `observer` must outlive them.
  virtual absl::Status StartReplays(ReplaySpec spec, ReplayObserver& observer) = 0;
  // Begins an instance in a buffer that is free, in ascending order of instances. Its destination
  // tiles may be written from now on, and its sources are awaited. Does nothing when these replays
  // are not known, or are being stopped.
  virtual void Replay(const ReplayKey& key, int32_t buffer, uint32_t instance) = 0;
  // The source tiles of all this worker's devices are filled. Does nothing when the instance is not
  // under way.
  virtual void ReplaySourceHere(const ReplayKey& key, uint32_t instance) = 0;
  // Ends what is under way, with `why` as the status of every device not complete yet. What is sent
  // for an instance below `next_instance`, now or later, is dropped. Does nothing when these
  // replays are not known.
  virtual void StopReplays(const ReplayKey& key, const absl::Status& why,
                           uint32_t next_instance) = 0;
};

}  // namespace crossmesh
