#pragma once

#include "worker/transport/socket/peer_regions.h"
#include "worker/transport/socket/sink_queue.h"
#include "worker/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace crossmesh {

class IncomingStream;

// A message that an IncomingStream announced: with its payload, or with what its sender must be
// asked for. The stream knows its messages and leaves them when it ends; what needed it fails then.
class SocketMessage final : public IncomingMessage {
 public:
  // What stands in the announcement.
  struct Announced {
    MessageHeader header;
    uint64_t id = 0;
    bool whole = false;
    std::unique_ptr<std::byte[]> payload;  // when whole, unless it is empty
    PeerRegion* region = nullptr;          // where the sender has it, when it said so
    std::vector<iovec> remote;             // and where that is mapped here, when it is
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
};

}  // namespace crossmesh
