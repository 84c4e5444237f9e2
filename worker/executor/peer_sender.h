#pragma once

#include "worker/executor/task_context.h"
#include "worker/transport/transport.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include <absl/time/time.h>

namespace crossmesh {

class ChannelSender;
class TaskHost;

// Gives the channels of a task to one peer their turns: of all that they could send now, what is
// due first, and no more than a window under way.
//
// The window is two periods of what the plan sends to this peer, for each of its lanes. So peers
// that share a NIC share it by the bytes planned for them, since what a connection gets of a port
// is what it has waiting there. A plan that takes its time (Plan::Spec::least_run_ns) sends no
// chunk sooner than an even pace over that time allows.
//
// The first chunk after a pause is sent alone, and what follows it in the task's next step: a
// transport writes when the loop gets back to it, and to gather and hash a window takes far longer
// than one chunk. Confined to the loop.
class PeerSender {
 public:
  // All must outlive the sender. `host` pumps it again when the pace held it up.
  PeerSender(TaskContext& context, PeerId peer, TaskHost& host);

  PeerId peer() const { return peer_; }
  // Before the first Pump. The channel must outlive the sender's use.
  void Add(ChannelSender& channel, int64_t planned_bytes);
  // As if nothing had been sent. Not while something is under way.
  void Rewind();
  // Lets channels send what can be sent now.
  void Pump();
  // The same, when this was asked of the host.
  void PumpAsAsked();
  // In each step of the task.
  void Step();

  // A channel has sent a message; the peer has taken one. Bytes are those of chunks.
  void OnSend(int64_t bytes);
  void OnTaken(int64_t bytes);

  int64_t sent_bytes() const { return sent_bytes_; }
  // So long was something under way.
  std::chrono::steady_clock::duration busy() const { return busy_; }

 private:
  using Clock = std::chrono::steady_clock;

  ChannelSender* NextInTurn() const;
  // False, and a later Pump is asked for, when the next chunk would be too soon.
  bool KeepsPace();

  const TaskContext& context_;
  TaskHost& host_;
  const PeerId peer_;
  const int lanes_;
  std::vector<ChannelSender*> channels_;
  int64_t planned_bytes_ = 0;
  int64_t window_bytes_ = 0;
  int32_t open_ = 0;  // messages that the peer has not taken
  int64_t open_bytes_ = 0;
  int64_t sent_bytes_ = 0;
  Clock::duration busy_{};
  Clock::time_point open_since_;  // when something is under way
  const absl::Duration least_run_;
  std::optional<Clock::time_point> begin_;  // of a run that keeps a pace
  bool pump_asked_ = false;
  bool first_alone_ = false;  // until the next step
};

}  // namespace crossmesh
