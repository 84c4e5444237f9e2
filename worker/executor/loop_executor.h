#pragma once

#include "common/event_loop/timer_id.h"
#include "worker/executor/executor.h"
#include "worker/executor/executor_resources.h"
#include "worker/executor/peer_table.h"
#include "worker/executor/pending_messages.h"
#include "worker/executor/replay_runner.h"
#include "worker/executor/task_execution.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class EventLoop;

// The executor: finds the task of every call of the transport, and drives tasks by steps and timers
// on the loop. Confined to the loop.
class LoopExecutor final : public Executor {
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
  ReplayRunner& replays() override;

  void OnMessage(std::unique_ptr<IncomingMessage> message) override;
  void OnSent(Ticket ticket, const absl::Status& status) override;
  void OnReceived(Ticket ticket, const absl::Status& status) override;
  void OnPeerLost(PeerId peer, const absl::Status& status) override;

 private:
  struct Running {
    std::unique_ptr<TaskExecution> task;
    TimerId deadline;
    TimerId stall_round;
  };

  absl::Status CheckStart(const TaskSpec& spec) const;
  void StartTimers(const TaskKey& key);
  void StartStallRound(const TaskKey& key);
  void StartPendingRound();
  void Step();
  void Finish(const TaskKey& key);
  TaskExecution* Find(const TaskKey& key) const;
  // Cuts the connection, which is then lost for every task.
  void OnPeerStalled(PeerId peer, const absl::Status& why);
  // To every task; the connection is gone already.
  void TellLost(PeerId peer, const absl::Status& why);

  EventLoop& loop_;
  const ExecutorOptions options_;
  std::unique_ptr<ExecutorResources> shared_;  // from Attach on
  PeerTable peers_;
  PendingMessages pending_;
  bool pending_round_started_ = false;
  absl::btree_map<TaskKey, Running> tasks_;  // which take turns in this order
  std::vector<TaskKey> stepping_;            // kept for its memory
  std::optional<ReplayRunner> replays_;      // from Attach on
};

}  // namespace crossmesh
