#pragma once

#include "worker/executor/stall_counter.h"
#include "worker/executor/wire_message.h"
#include "worker/transport/transport.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class TaskChannels;
struct TaskContext;

// The workers that a task exchanges messages with: which of them are lost, and whether those that
// are silent are still there, which it asks. Fails the channels of those that are lost, and blames
// them in the report. Confined to the loop.
class TaskPeers {
 public:
  // `peer_ids` by TaskSpec::peers; none where the task exchanges no messages. Both others must
  // outlive this.
  TaskPeers(TaskContext& context, TaskChannels& channels,
            std::span<const std::optional<PeerId>> peer_ids);

  // As if nothing had come; those that are lost stay so.
  void Rewind();
  // Fails the channels of those that were lost before, and tells the others that the task's
  // receivers are ready, where senders wait for that.
  void Begin();

  // A message has come from the other end of a channel. Only messages are signs of life: a peer's
  // worker takes what it then drops.
  void OnHeard(int32_t channel);
  void Answer(const MessageHeader& probe, int32_t channel);
  // Tells all peers that are there that the replays of this part are over.
  void TellStopped();
  // Is it a probe, its answer, that a receiver is ready, or that replays are over?
  static bool IsNotice(MessageKind kind);
  // Of a notice.
  void OnNoticeSent(Ticket ticket);

  void OnLost(PeerId peer, const absl::Status& why);
  // A transfer of the channel has found that its peer is gone, before the transport says so.
  void OnUnreachable(int32_t channel, const absl::Status& why);
  // As if it were lost, but told why, since it may be there.
  void GiveUp(absl::string_view worker, const absl::Status& why);

  // Four times per stall limit.
  void OnStallRound();

 private:
  struct Peer {
    std::optional<PeerId> id;        // none: not needed, or lost
    std::optional<PeerId> given_up;  // lost, and perhaps still connected
    absl::Status lost;               // why, when it is
    bool heard = false;              // since the last round
    int32_t notices_open = 0;
    StallCounter silence{StallCounter::kReceiverRoundsMax};
  };
  enum class Connection : uint8_t { kGone, kThere };

  int32_t count() const { return static_cast<int32_t>(peers_.size()); }
  // Sends a message without payload to the other end of a channel.
  void Notify(int32_t channel, MessageKind kind, uint32_t instance);
  void Lose(int32_t peer, const absl::Status& why, Connection connection);
  // All that is left of a peer that is lost.
  void FailChannelsOf(int32_t peer, Connection connection);
  // Asks a silent peer whether it is there, or declares it stalled.
  void Check(int32_t peer);
  // When only transfers with peers that were given up hold up the end.
  void CutOffGivenUp();
  void DeclareStalled(int32_t peer, absl::string_view how);

  TaskContext& context_;
  TaskChannels& channels_;
  std::vector<Peer> peers_;  // as TaskSpec::peers
  int rounds_held_up_ = 0;   // in a row
};

}  // namespace crossmesh
