#pragma once

#include "common/event_loop/timer_id.h"
#include "worker/executor/part_replayer.h"
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

// Runs parts without courses again and again, over the executor's transport.
class ReplayRunner final : public PartReplayer {
 public:
  // All must outlive the runner.
  ReplayRunner(ExecutorResources& shared, PeerTable& peers, PendingMessages& pending);
  ReplayRunner(const ReplayRunner&) = delete;
  ReplayRunner& operator=(const ReplayRunner&) = delete;
  ~ReplayRunner() override;

  absl::Status StartReplays(ReplaySpec spec, ReplayObserver& observer) override;
  void Replay(const ReplayKey& key, int32_t buffer, uint32_t instance) override;
  void ReplaySourceHere(const ReplayKey& key, uint32_t instance) override;
  void StopReplays(const ReplayKey& key, const absl::Status& why, uint32_t next_instance) override;
  // Tells the other workers of these replays that they have failed here, before StopReplays: their
  // observers are told (ReplayObserver::OnPeerStopped). Does nothing when they are not known.
  void TellStopped(const ReplayKey& key);

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
