#pragma once

#include "worker/executor/replay.h"
#include "worker/executor/task.h"
#include "worker/transport/transport.h"

#include <cstdint>
#include <deque>
#include <memory>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <absl/functional/function_ref.h>

namespace crossmesh {

TaskKey KeyOf(const MessageHeader& header);

// Messages of tasks that have not been started yet, in the order in which they came; and the tasks
// that are over, whose messages are not kept. Confined to the loop.
class PendingMessages {
 public:
  explicit PendingMessages(int64_t messages_max) : messages_max_(messages_max) {}

  // False, and the message is dropped, when its task is over or there are too many messages.
  bool Add(std::unique_ptr<IncomingMessage> message);
  // Hands over the messages of a task.
  void Take(const TaskKey& key, absl::FunctionRef<void(std::unique_ptr<IncomingMessage>)> deliver);
  // Once per ExecutorOptions::pending_for: drops what was here in the round before, and returns how
  // many messages that were.
  int64_t OnRound();
  bool empty() const { return messages_.empty(); }

  // The task is over: its messages, those here and those to come, are dropped, so that their
  // senders can end. Returns how many were here. The latest of such tasks are remembered, up to a
  // bound.
  int64_t OnTaskEnded(const TaskKey& key);
  // The same for all instances of these replays below `next_instance`. The latest such number is
  // remembered.
  int64_t OnReplaysStopped(const ReplayKey& key, uint32_t next_instance);
  // The same for all tasks of older epochs.
  int64_t OnEpochRaised(uint64_t epoch);
  bool IsPast(const TaskKey& key) const;

 private:
  struct Pending {
    std::unique_ptr<IncomingMessage> message;
    int64_t round = 0;
  };
  const int64_t messages_max_;
  int64_t round_ = 0;
  uint64_t epoch_ = 0;
  std::deque<Pending> messages_;
  std::deque<TaskKey> past_in_order_;
  absl::flat_hash_set<TaskKey> past_;
  std::deque<ReplayKey> stopped_in_order_;
  absl::flat_hash_map<ReplayKey, uint32_t> next_instance_of_;  // of replays that were stopped
};

}  // namespace crossmesh
