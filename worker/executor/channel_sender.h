#pragma once

#include "worker/executor/due_queue.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/send_window.h"
#include "worker/executor/staging_pool.h"
#include "worker/executor/stall_counter.h"
#include "worker/executor/task_context.h"
#include "worker/executor/tile_cursor.h"
#include "worker/transport/transport.h"

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The sending end of a channel to another worker. It sends, when it is its turn, of the chunks that
// are here the one that is due first. After the chunks of a relay goes the checksum of
// its root; in place of what a failed relay lacks goes the reason. Confined to the loop.
class ChannelSender {
 public:
  // All must outlive the channel. What it sends is counted in `window`, to whose peer it goes;
  // `waiter` waits for staging in its name.
  ChannelSender(TaskContext& context, int32_t channel, SendWindow& window, StagingWaiter& waiter);
  ChannelSender(const ChannelSender&) = delete;
  ChannelSender& operator=(const ChannelSender&) = delete;
  ~ChannelSender() { context_.shared.send_staging.Forget(waiter_); }

  // As if nothing had been sent. Not before finished().
  void Rewind();
  // What the plan sends through it.
  int64_t planned_bytes() const;

  // Is there something to do in a turn? If so: the sooner due, the smaller.
  bool ready() const {
    return receiver_ready_ && !stopped_ && !waits_for_staging_ && (!opened_ || !queue_.idle());
  }
  std::pair<int32_t, int64_t> due() const {
    return opened_ ? std::pair(queue_.due(), NodeOf(queue_.entry()).relay) : kOpeningDue;
  }
  // Takes a turn: sends a message, or finds that what it would send is not here or has to wait.
  void SendNext();

  // After each of these it may be ready, and there may be room in the window.
  // The receiver is there, and has memory; where senders wait for that.
  void OnReady() { receiver_ready_ = true; }
  // Something has come of the relay of an entry, or of its end.
  void OnProgress(int32_t entry) { queue_.Wake(entry); }
  void OnStagingFree() { waits_for_staging_ = false; }
  void OnSent(Ticket ticket, const absl::Status& status);

  // Tells the peer that all that is left fails for this reason, and sends nothing else any more.
  void Close(const absl::Status& why);
  // The peer is gone: nothing is sent any more.
  void Drop();

  bool waits_for_receiver() const { return !stopped_ && !receiver_ready_; }
  // Is everything sent, and taken by the peer?
  bool finished() const { return (stopped_ || queue_.finished()) && open_ == 0; }
  // Once a round of the stall timer; true when the peer does not take what was sent.
  bool StalledOnRound() { return stall_.OnRound(open_ > 0); }

 private:
  static constexpr std::pair<int32_t, int64_t> kOpeningDue = {-1, 0};

  const PreparedPart::Node& NodeOf(int32_t entry) const {
    return context_.part.nodes()[entries_[entry].from_node];
  }
  void SendChunk(int32_t node);
  void SendEnd(int32_t node);
  void SendOpening();
  // What the ticket names.
  void Send(Ticket ticket, uint64_t sequence, Pieces payload);
  void SendFailure(const absl::Status& why, int32_t entry, uint64_t sequence);
  // Gathers a chunk that is in too many pieces; false when it must wait for staging.
  bool Stage(TileCursor& cursor, const TileCursor::Range& range, Transfer& transfer);
  void HashRootChunk(NodeChunk root, const TileCursor::Range& range, const Transfer& transfer);

  uint64_t EndSequence(int32_t entry) const;

  TaskContext& context_;
  const int32_t channel_index_;
  const PreparedPart::Channel& channel_;
  const std::span<const PreparedPart::Entry> entries_;
  SendWindow& window_;
  StagingWaiter& waiter_;
  const absl::string_view link_;
  const int pieces_max_;
  TileCursor source_;     // of relays that begin here
  TileCursor forwarded_;  // of those that were received

  bool receiver_ready_;
  bool opened_ = false;
  bool stopped_ = false;
  bool waits_for_staging_ = false;
  DueQueue queue_;
  int32_t open_ = 0;  // messages that the peer has not taken
  StallCounter stall_;
};

}  // namespace crossmesh
