#pragma once

#include "common/event_loop/timer_id.h"
#include "worker/executor/channel_sender.h"
#include "worker/executor/send_window.h"
#include "worker/executor/staging_pool.h"
#include "worker/executor/task_context.h"
#include "worker/transport/transport.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <absl/time/time.h>

namespace crossmesh {

// The channels of a task to one peer, and their turns: of all that they could send now, what is due
// first goes, and no more than a window is under way.
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
  // `context` must outlive the sender.
  PeerSender(TaskContext& context, PeerId peer);
  PeerSender(const PeerSender&) = delete;
  PeerSender& operator=(const PeerSender&) = delete;
  ~PeerSender();

  // The channel's sending end, by its index in the part; before the first Pump. It lives as long as
  // this.
  ChannelSender& Add(int32_t channel);
  // As if nothing had been sent. Not while something is under way.
  void Rewind();
  // Lets channels send what can be sent now: to be called when one of them can go on.
  void Pump();
  // In each step of the task.
  void Step();

  const SendWindow& window() const { return window_; }

 private:
  using Clock = std::chrono::steady_clock;

  // A channel, and what waits for staging memory in its name.
  struct Turn final : StagingWaiter {
    Turn(PeerSender& peer, int32_t channel_index);
    void OnStagingFree() override;

    PeerSender& sender;
    ChannelSender channel;
  };

  ChannelSender* NextInTurn() const;
  // False when the next chunk would be too soon; then it is sent when its time has come.
  bool KeepsPace();

  TaskContext& context_;
  const int lanes_;
  SendWindow window_;
  std::vector<std::unique_ptr<Turn>> turns_;
  int64_t planned_bytes_ = 0;
  int64_t window_bytes_ = 0;
  const absl::Duration least_run_;
  std::optional<Clock::time_point> begin_;  // of an execution that keeps a pace
  std::optional<TimerId> pace_timer_;       // while the pace holds a chunk up
  bool first_alone_ = false;                // until the next step
};

}  // namespace crossmesh
