#pragma once

#include "worker/transport/message_pool.h"
#include "worker/transport/socket/peer_regions.h"
#include "worker/transport/socket/sink_queue.h"
#include "worker/transport/socket/socket_frame.h"
#include "worker/transport/transport.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace crossmesh {

class IncomingStream;

// A message that an IncomingStream announced: with its payload, or with what its sender must be
// asked for. The stream knows its messages and leaves them when it ends; what needed it fails then.
class SocketMessage final : public PooledMessage {
 public:
  // What stands in the announcement.
  struct Announced {
    MessageHeader header;
    uint64_t id = 0;
    bool whole = false;
    std::span<const std::byte> payload;  // when whole; the message takes a copy
    PeerRegion* region = nullptr;        // where the sender has it, when it said so
    std::vector<iovec> remote;           // and where that is mapped here, when it is
  };

  SocketMessage(IncomingStream& stream, SinkQueue& told, Announced announced);
  ~SocketMessage() override;

  const MessageHeader& header() const override { return announced_.header; }
  void Receive(Pieces into, Ticket ticket) override;

  // How much of a stream's bound on what is not answered yet it takes, in pages.
  int64_t pages() const;

 private:
  friend class IncomingStream;

  void ReceiveWhole(Pieces into, Ticket ticket);

  IncomingStream* stream_;  // none when it has ended, or has been answered
  SinkQueue& told_;
  Announced announced_;
  bool received_ = false;
  // The other messages of the stream.
  SocketMessage* next_ = nullptr;
  SocketMessage* previous_ = nullptr;
  std::array<std::byte, kInlineBytesMax> payload_;  // when whole, as far as there is one
};

}  // namespace crossmesh
