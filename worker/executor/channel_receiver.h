#pragma once

#include "worker/executor/prepared_part.h"
#include "worker/executor/staging_pool.h"
#include "worker/executor/stall_counter.h"
#include "worker/executor/task_context.h"
#include "worker/executor/tile_cursor.h"
#include "worker/transport/transport.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The receiving end of a channel from another worker. Every message says by its sequence number
// what it is, so any order will do. A chunk goes straight into the tiles where these are
// in few pieces, else through staging; it waits for staging, but never for anything to be sent on.
// Confined to the loop.
class ChannelReceiver final : public StagingWaiter {
 public:
  // All must outlive the receiver.
  ChannelReceiver(TaskContext& context, int32_t channel, PeerId peer);
  ~ChannelReceiver() override { context_.shared.receive_staging.Forget(*this); }

  // As if nothing had come. Not before finished().
  void Rewind();

  // Duplicates and what is not wanted any more are dropped and counted. A message that cannot come
  // from a peer with the same plan fails the channel.
  void OnMessage(std::unique_ptr<IncomingMessage> message);
  void OnReceived(Ticket ticket, const absl::Status& status);
  // Fails everything of the channel that is not complete.
  void Fail(const absl::Status& why);

  // Does something still have to come?
  bool expecting() const { return !failed_ && (!opened_ || FirstOpenEntry().has_value()); }
  bool finished() const { return open_ == 0 && waiting_.empty(); }
  // Once a round of the stall timer; true when the peer does not deliver what it announced.
  bool StalledOnRound() { return stall_.OnRound(open_ > 0); }
  // For messages: what is missing, e.g. "relay 3 at b.0: 2 of 5 chunks came". Empty if nothing.
  std::string Missing() const;

 private:
  struct Place {
    int32_t entry = 0;
    int64_t chunk = 0;  // chunks of the entry: its end
  };
  std::optional<Place> PlaceOf(uint64_t sequence) const;
  std::optional<int32_t> FirstOpenEntry() const;
  // Can the message come from a peer with the same plan?
  bool FitsPlan(const MessageHeader& header) const;

  void OnChunkMessage(std::unique_ptr<IncomingMessage> message, const Place& place);
  void OnEndMessage(IncomingMessage& message, int32_t entry);
  // False when it must wait for staging.
  bool ReceiveChunk(IncomingMessage& message);
  void ReceiveSmall(IncomingMessage& message, int32_t entry);
  void FinishChunk(const TransferSubject& subject);
  void FinishSmall(Transfer& transfer);
  void CheckOpening(std::span<const std::byte> payload);
  void OnStagingFree() override;
  void CountDropped() { context_.shared.counters.messages_dropped++; }
  std::string PeerText() const;

  TaskContext& context_;
  const int32_t channel_index_;
  const PreparedPart::Channel& channel_;
  const std::span<const PreparedPart::Entry> entries_;
  const absl::string_view link_;
  const int pieces_max_;
  TileCursor cursor_;

  bool opening_taken_ = false;
  bool opened_ = false;
  bool failed_ = false;
  int32_t open_ = 0;                                       // receives under way
  std::vector<std::unique_ptr<IncomingMessage>> waiting_;  // for staging, in line
  StallCounter stall_{StallCounter::kReceiverRoundsMax};
};

}  // namespace crossmesh
