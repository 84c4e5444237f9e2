#pragma once

#include "worker/executor/prepared_part.h"
#include "worker/executor/staging_pool.h"
#include "worker/executor/task_context.h"
#include "worker/executor/tile_cursor.h"
#include "worker/transport/transport.h"

#include <cstdint>
#include <optional>
#include <span>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The sending end of a channel to another worker: its relays in order, each chunk as soon as it is
// here, at most a window of messages under way. Behind the chunks of a relay goes the checksum of
// its root; in place of what a failed relay lacks goes the reason. Confined to the loop.
class ChannelSender final : public StagingWaiter {
 public:
  // All must outlive the sender.
  ChannelSender(TaskContext& context, int32_t channel, PeerId peer);
  ~ChannelSender() override { context_.shared.send_staging.Forget(*this); }

  // Sends what can be sent now.
  void Pump();
  void OnSent(Ticket ticket, const absl::Status& status);
  // Tells the peer that all that is left fails for this reason, and sends nothing else any more.
  void Close(const absl::Status& why);
  // The peer is gone: nothing is sent any more.
  void Drop();

  DeviceRank peer_device() const { return channel_.to; }
  // Is everything sent, and taken by the peer?
  bool finished() const { return (stopped_ || entry_ == channel_.entry_count) && open_ == 0; }
  // Once a round of the stall timer; true when the peer does not take what was sent.
  bool StalledOnRound() { return stall_.OnRound(open_ > 0); }

 private:
  void OnStagingFree() override { Pump(); }

  bool WindowOpen() const;
  // Each sends one message, or returns false when it must wait.
  bool SendNext();
  bool SendChunk(int32_t node);
  bool SendEnd(int32_t node);
  void SendOpening();
  void SendFailure(const absl::Status& why, int32_t entry, uint64_t sequence);
  // Gathers a chunk that is in too many pieces; false when it must wait for staging.
  bool Stage(TileCursor& cursor, const TileCursor::Range& range, Transfer& transfer);
  void HashRootChunk(int32_t node, const TileCursor::Range& range, const Transfer& transfer);

  void NextEntry();
  uint64_t EndSequence() const;

  TaskContext& context_;
  const int32_t channel_index_;
  const PreparedPart::Channel& channel_;
  const std::span<const PreparedPart::Entry> entries_;
  const PeerId peer_;
  const absl::string_view link_;
  const int pieces_max_;
  const int lanes_;
  TileCursor source_;     // of relays that begin here
  TileCursor forwarded_;  // of those that were received

  bool opened_ = false;
  bool stopped_ = false;
  int32_t entry_ = 0;  // the next message to be sent
  int32_t chunk_ = 0;
  int32_t open_ = 0;        // messages that the peer has not taken
  int64_t open_bytes_ = 0;  // of chunks among them
  StallCounter stall_;
};

}  // namespace crossmesh
