#pragma once

#include "common/event_loop/event_loop.h"
#include "worker/executor/executor.h"
#include "worker/executor/peer_table.h"
#include "worker/executor/pending_messages.h"
#include "worker/executor/replay_set.h"
#include "worker/executor/task_context.h"
#include "worker/executor/task_execution.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The executor: finds the task of every call of the transport, and drives tasks by steps and timers
// on the loop. Confined to the loop.
class LoopExecutor final : public Executor, public ReplayRunner, public TaskHost {
 public:
  LoopExecutor(EventLoop& loop, ExecutorOptions options);

  absl::Status Attach(Transport& transport) override;
  absl::Status Start(TaskSpec spec, TaskObserver& observer) override;
  void Cancel(const TaskKey& key, absl::Status why) override;
  void Refuse(const TaskKey& key) override;
  void RaiseEpoch(uint64_t epoch) override;
  void PeerLost(const TaskKey& key, absl::string_view worker, absl::Status why) override;
  void SourceHere(const TaskKey& key, DeviceRank device) override;
  std::optional<int64_t> MovedBytes(const TaskKey& key) const override;
  const ExecutorCounters& counters() const override;

  ReplayRunner& replays() override { return *this; }

  absl::Status StartReplays(ReplaySpec spec, ReplayObserver& observer) override;
  void Replay(const ReplayKey& key, int32_t buffer, uint32_t instance) override;
  void ReplaySourceHere(const ReplayKey& key, uint32_t instance) override;
  void StopReplays(const ReplayKey& key, const absl::Status& why, uint32_t next_instance) override;

  void OnMessage(std::unique_ptr<IncomingMessage> message) override;
  void OnSent(Ticket ticket, const absl::Status& status) override;
  void OnReceived(Ticket ticket, const absl::Status& status) override;
  void OnPeerLost(PeerId peer, const absl::Status& status) override;

  void RequestStep() override;
  void PumpAfter(absl::Duration delay, const TaskExecution& task, PeerId peer) override;
  void OnPeerStalled(PeerId peer, const absl::Status& why) override;

 private:
  struct Running {
    std::unique_ptr<TaskExecution> task;
    TimerId deadline;
    TimerId stall_round;
  };

  struct Replaying {
    std::unique_ptr<ReplaySet> set;
    absl::Duration stall_limit;
    TimerId stall_round;
  };

  absl::Status CheckStart(const TaskSpec& spec) const;
  absl::StatusOr<std::vector<std::optional<PeerId>>> Connect(const TaskSpec& spec);
  void StartTimers(const TaskKey& key);
  void StartStallRound(const TaskKey& key);
  void StartReplayStallRound(const ReplayKey& key);
  void StartParkingRound();
  void Step();
  bool StepReplays();
  void Finish(const TaskKey& key);
  TaskExecution* Find(const TaskKey& key) const;
  // For every task; the connection is gone already.
  void TellLost(PeerId peer, const absl::Status& why);

  EventLoop& loop_;
  const ExecutorOptions options_;
  std::unique_ptr<ExecutorResources> shared_;  // from Attach on
  PeerTable peers_;
  PendingMessages pending_;
  bool pending_round_started_ = false;
  absl::flat_hash_map<TaskKey, Running> tasks_;
  std::vector<TaskKey> stepping_;  // kept for its memory
  absl::flat_hash_map<ReplayKey, Replaying> replays_;
  std::vector<ReplayKey> stepping_replays_;  // likewise
  bool step_requested_ = false;
};

}  // namespace crossmesh
