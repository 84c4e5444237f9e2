#pragma once

#include "worker/executor/task_context.h"
#include "worker/transport/transport.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

class ChannelSender;

// Gives the channels of a task to one peer their turns: of all that they could send now, what is
// due first, and no more than a window under way.
//
// The window is two periods of what the plan sends to this peer, for each of its lanes. So peers
// that share a NIC share it by the bytes planned for them, since what a connection gets of a port
// is what it has waiting there. Confined to the loop.
class PeerSender {
 public:
  // `context` must outlive the sender.
  PeerSender(TaskContext& context, PeerId peer);

  PeerId peer() const { return peer_; }
  // Before the first Pump. The channel must outlive the sender's use.
  void Add(ChannelSender& channel, int64_t planned_bytes);
  // Lets channels send what can be sent now.
  void Pump();

  // A channel has sent a message; the peer has taken one. Bytes are those of chunks.
  void OnSend(int64_t bytes);
  void OnTaken(int64_t bytes);

 private:
  ChannelSender* NextInTurn() const;

  const TaskContext& context_;
  const PeerId peer_;
  const int lanes_;
  std::vector<ChannelSender*> channels_;
  int64_t planned_bytes_ = 0;
  int64_t window_bytes_ = 0;
  int32_t open_ = 0;  // messages that the peer has not taken
  int64_t open_bytes_ = 0;
};

}  // namespace crossmesh
