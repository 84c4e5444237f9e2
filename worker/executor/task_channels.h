#pragma once

#include "worker/executor/prepared_part.h"
#include "worker/executor/task.h"
#include "worker/transport/transport.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

class ChannelReceiver;
class ChannelSender;
class PeerSender;
struct TaskContext;

// The channels of a task from and to other workers, each named by its index in the part; a peer is
// named by its index in TaskSpec::peers. What lets a channel send lets its peer's other channels
// send as well, in their turns. Confined to the loop.
class TaskChannels {
 public:
  // `peer_ids` by peer; none where it is not needed. The context must outlive the channels.
  TaskChannels(TaskContext& context, std::span<const std::optional<PeerId>> peer_ids);
  TaskChannels(const TaskChannels&) = delete;
  TaskChannels& operator=(const TaskChannels&) = delete;
  ~TaskChannels();

  // As if nothing had been sent, and nothing had come. Not before finished().
  void Rewind();
  // Sends what can be sent now.
  void Pump();
  // In each step of the task.
  void Step();
  // Is everything sent that was to be, and nothing under way?
  bool finished() const;

  // By its number in the plan; nothing when no such channel leads from or to another worker.
  std::optional<int32_t> Find(uint32_t id) const;
  int32_t PeerOf(int32_t channel) const;
  int32_t count() const { return static_cast<int32_t>(receivers_.size()); }
  bool receives(int32_t channel) const { return receivers_[channel] != nullptr; }
  // From or to another worker?
  bool leaves(int32_t channel) const {
    return receives(channel) || senders_[channel].channel != nullptr;
  }

  // Anything but a probe and its answer.
  void OnMessage(int32_t channel, std::unique_ptr<IncomingMessage> message);
  // The receiver is there; does nothing where it is this worker's.
  void OnReady(int32_t channel);
  // Of a transfer of one of the channels.
  void OnSent(Ticket ticket, const absl::Status& status);
  void OnReceived(Ticket ticket, const absl::Status& status);
  // Something has come of the relay of an entry, of a channel to another worker.
  void OnProgress(const PreparedPart::Out& out);

  // All that is left of a peer's channels fails. It is told, unless it is gone.
  void Fail(int32_t peer, const absl::Status& why, bool connected);
  // The same of all channels, on the side of this worker's destinations and sources.
  void FailReceivers(const absl::Status& why);
  void CloseSenders(const absl::Status& why);

  // A channel on which something must still come from the peer, if only that it is ready.
  std::optional<int32_t> ExpectedFrom(int32_t peer) const;
  bool HasOpenTransfers(int32_t peer) const;
  // Once a round of the stall timer: what the channel's peer has failed to do for too long, e.g.
  // "took nothing of channel a.0 -> b.1".
  std::optional<std::string> StallOnRound(int32_t channel);
  // Of a destination device: what has not come yet, for messages. Empty if nothing.
  std::string FirstMissing(DeviceRank device) const;

  // What went to each peer, by those to which anything was to be sent.
  void WriteLinks(std::vector<LinkReport>& links) const;

 private:
  // Null where the channel ends here, or does not leave the worker.
  struct Sending {
    ChannelSender* channel = nullptr;
    PeerSender* peer = nullptr;
  };

  PeerSender& SenderTo(int32_t peer, PeerId id);
  void ReserveTransfers(std::span<const std::optional<PeerId>> peer_ids) const;

  TaskContext& context_;
  std::vector<std::unique_ptr<PeerSender>> peers_;           // none where nothing is sent
  std::vector<Sending> senders_;                             // by channel
  std::vector<std::unique_ptr<ChannelReceiver>> receivers_;  // likewise
};

}  // namespace crossmesh
