#pragma once

#include "common/event_loop/timer_id.h"
#include "worker/executor/replay.h"
#include "worker/transport/transport.h"

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/time/time.h>

namespace crossmesh {

class PeerTable;
class PendingMessages;
class ReplaySet;
class TaskExecution;
struct ExecutorResources;

// Runs a part again and again without allocating or connecting anew: the transfers of a pipeline,
// once for each microbatch. The receivers of an instance say when they have memory for it, and only
// then its senders send; until both have, no worker is blamed for waiting, but a peer that answers
// no question for the stall limit is. How long an instance may take has no bound here: its owner
// ends it by StopReplays. Confined to the loop.
class ReplayRunner {
 public:
  // All must outlive the runner.
  ReplayRunner(ExecutorResources& shared, PeerTable& peers, PendingMessages& pending);
  ReplayRunner(const ReplayRunner&) = delete;
  ReplayRunner& operator=(const ReplayRunner&) = delete;
  ~ReplayRunner();

  // Connects, and takes all memory that instances need. Those that were stopped can be started
  // again once they are stopped at every worker. AlreadyExists when such replays run;
  // InvalidArgument as Executor::Start, without buffers, and for a part that computes scales.
  // `observer` must outlive them.
  absl::Status StartReplays(ReplaySpec spec, ReplayObserver& observer);
  // Begins an instance in a buffer that is free, in ascending order of instances. Its destination
  // tiles may be written from now on, and its sources are awaited. Does nothing when these replays
  // are not known, or are being stopped.
  void Replay(const ReplayKey& key, int32_t buffer, uint32_t instance);
  // The source tiles of all this worker's devices are filled. Does nothing when the instance is not
  // under way.
  void ReplaySourceHere(const ReplayKey& key, uint32_t instance);
  // Tells the other workers of these replays that they have failed here, before StopReplays: their
  // observers are told (ReplayObserver::OnPeerStopped). Does nothing when they are not known.
  void TellStopped(const ReplayKey& key);
  // Ends what is under way, with `why` as the status of every device not complete yet. What is sent
  // for an instance below `next_instance`, now or later, is dropped. Does nothing when these
  // replays are not known.
  void StopReplays(const ReplayKey& key, const absl::Status& why, uint32_t next_instance);

  // For the executor.
  // Returns the message when it is of no replays, or for an instance that is to come.
  std::unique_ptr<IncomingMessage> OnMessage(std::unique_ptr<IncomingMessage> message);
  void OnPeerLost(PeerId peer, const absl::Status& why);
  // As TaskExecution::Step, of every instance that is under way.
  bool Step();
  // Null unless the instance is under way.
  TaskExecution* Find(const TaskKey& key) const;

 private:
  struct Replaying {
    std::unique_ptr<ReplaySet> set;
    absl::Duration stall_limit;
    TimerId stall_round;
  };

  absl::Status CheckReplays(const ReplaySpec& spec) const;
  void StartStallRound(const ReplayKey& key);

  ExecutorResources& shared_;
  PeerTable& peers_;
  PendingMessages& pending_;
  absl::flat_hash_map<ReplayKey, Replaying> replays_;
  std::vector<ReplayKey> stepping_;  // kept for its memory
};

}  // namespace crossmesh
