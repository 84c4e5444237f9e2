#pragma once

#include "worker/executor/executor_resources.h"
#include "worker/executor/replay.h"
#include "worker/executor/task_execution.h"
#include "worker/transport/transport.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

// The replays of one part: a task for each buffer, which is rewound for every instance. Confined to
// the loop.
class ReplaySet {
 public:
  // `peer_ids` as those of TaskExecution. `shared` and `observer` must outlive the set.
  ReplaySet(const ReplaySpec& spec, std::span<const std::optional<PeerId>> peer_ids,
            ExecutorResources& shared, ReplayObserver& observer);

  void Begin(int32_t buffer, uint32_t instance);
  void Stop(const absl::Status& why);
  // As TaskPeers::TellStopped.
  void TellStopped() { buffers_.front().task->TellStopped(); }
  // A message of this part. Returns it when it is for an instance that is to come; what it drops it
  // counts.
  std::unique_ptr<IncomingMessage> OnMessage(std::unique_ptr<IncomingMessage> message);
  void OnPeerLost(PeerId peer, const absl::Status& why);
  void OnStallRound();
  // A bounded piece of the work of every instance. Returns whether more is to be done now.
  bool Step();

  // Null unless it is under way.
  TaskExecution* Find(uint32_t instance);
  // All that was begun has ended, and nothing else will be.
  bool stopped() const;
  ReplayObserver& observer() { return observer_; }

 private:
  struct Buffer {
    std::unique_ptr<TaskExecution> task;
    uint32_t instance = 0;
    bool running = false;
  };
  // A receiver was ready before this worker had begun the instance.
  struct EarlyReady {
    uint32_t instance = 0;
    uint32_t channel = 0;
  };

  bool IsPast(uint32_t instance) const { return instance < next_instance_; }
  bool KeepIfReady(const MessageHeader& header);
  void Finish(Buffer& buffer);

  ExecutorResources& shared_;
  ReplayObserver& observer_;
  std::vector<Buffer> buffers_;
  uint32_t next_instance_;  // those below have been begun here, or never will be
  std::vector<EarlyReady> early_;
  size_t early_max_ = 0;
  bool stopping_ = false;
};

}  // namespace crossmesh
