#pragma once

#include "common/base/strong_int.h"
#include "common/event_loop/event_source.h"
#include "worker/transport/pieces.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What stands before every payload on the wire. Fixed 64 bytes, little endian, no padding.
// (operation, epoch, plan, instance, channel, sequence) names the message; `token` is the
// operation's secret, without which a receiver drops the message and counts it.
struct MessageHeader {
  uint64_t token_high = 0;
  uint64_t token_low = 0;
  uint64_t operation = 0;
  uint64_t epoch = 0;
  uint32_t plan = 0;
  uint32_t instance = 0;
  uint32_t channel = 0;
  uint32_t kind = 0;      // the executor's; the transport does not look at it
  uint64_t sequence = 0;  // within the channel
  uint64_t payload_bytes = 0;
  friend bool operator==(const MessageHeader&, const MessageHeader&) = default;
};
static_assert(sizeof(MessageHeader) == 64);

// A connected peer, valid until Disconnect or until it was reported lost. Never reused.
using PeerId = StrongInt<struct PeerIdTag, uint64_t>;

// Names one Send or Receive in the sink's callbacks; the caller's own, any value.
using Ticket = uint64_t;

// A message whose header has come and whose payload waits, in the transport or at the sender.
// While it is held, the message waits; destroying it without Receive drops it, which completes its
// Send with OK. Confined to the loop; must be destroyed before its transport.
class IncomingMessage {
 public:
  virtual ~IncomingMessage() = default;
  virtual const MessageHeader& header() const = 0;
  // Moves the payload into `into`, of exactly header().payload_bytes bytes in at most
  // Transport::pieces_max() pieces, and calls TransportSink::OnReceived(ticket, status) once,
  // later, never from inside this call. The pieces, and the list of them, must stay valid until
  // then. At most one call; the message may be destroyed right after it.
  virtual void Receive(Pieces into, Ticket ticket) = 0;
};

// What a transport reports to. All calls come on the loop's thread, from inside Progress, never
// from inside a call of the transport's own methods.
class TransportSink {
 public:
  virtual ~TransportSink() = default;
  virtual void OnMessage(std::unique_ptr<IncomingMessage> message) = 0;
  // The payload given to Send may be reused or freed.
  virtual void OnSent(Ticket ticket, const absl::Status& status) = 0;
  // The payload is in place (OK), or the destination holds garbage and nothing writes there any
  // more.
  virtual void OnReceived(Ticket ticket, const absl::Status& status) = 0;
  // The peer is gone. Before this call every Send to it and every Receive from it has been
  // completed, with Unavailable where it did not get through.
  virtual void OnPeerLost(PeerId peer, const absl::Status& status) = 0;
};

// Moves messages between workers over one NIC, or over several at once. Messages to a peer with one
// lane are announced in the order in which they were sent, to one with more in any order; payloads
// complete in any order. A sender's OnSent comes only when the receiver has taken the payload
// (rendezvous), so unfinished sends are the flow control; payloads up to `eager_bytes_max()` may
// complete before.
//
// The k-th Connect from a to b and the k-th from b to a are the two ends of one connection: each
// tells its side when it breaks. Messages and their payloads also come from peers that this side
// has not connected to; their end is told only by the OnReceived of what is being received.
//
// Confined to the event loop's thread, apart from construction and destruction, which come before
// and after. Destroying a transport breaks its connections and calls the sink no more; buffers are
// free afterwards. Nothing is allocated per message by our code once a connection is warm
// (message_pool.h).
//
// Implementations: inprocess/ (threads of one process, seeded faults), socket/ (TCP, shared
// memory), ucx/ (TCP, RDMA, shared memory), striped/ (one of these for each NIC). Every one passes
// testing/transport_conformance.h.
class Transport : public EventSource {
 public:
  // "inprocess", "socket", "ucx": the value of the metric label `transport`.
  virtual absl::string_view name() const = 0;
  // Opaque bytes with which a peer's Connect reaches this transport. At most 4 KiB.
  virtual const std::string& address() const = 0;
  virtual int64_t eager_bytes_max() const = 0;
  // The most pieces of memory that a payload may be sent from and received into. At least 1.
  virtual int pieces_max() const = 0;
  // With a payload in more pieces, to or from this peer, the link has more work than it costs to
  // gather or scatter them. At most pieces_max().
  virtual int useful_pieces_max(PeerId peer) const = 0;

  // Peers of this host may read payloads in `memory` directly, where the transport knows how.
  // Until Reclaim it stays as it is, and its descriptor open.
  virtual void Lend(const LentMemory& /*memory*/) {}
  // No payload in `memory`, which was lent, is being sent.
  virtual void Reclaim(std::span<const std::byte> /*memory*/) {}

  // InvalidArgument when `address` is not of this transport; Unavailable when no link of this host
  // leads there. Does not wait for the peer: one that is not there is reported by OnPeerLost.
  // Connecting twice to one address gives two peers; a transport can connect to itself.
  virtual absl::StatusOr<PeerId> Connect(absl::string_view address) = 0;
  // The kind of link used to a connected peer: "local", "shm", "tcp", "rdma"; the metric label
  // `link`.
  virtual absl::string_view link(PeerId peer) const = 0;
  // How many ways lead to a connected peer side by side. To keep them all busy takes so many times
  // what keeps one busy.
  virtual int lanes(PeerId /*peer*/) const { return 1; }

  // The pieces of the payload, and the list of them, must stay valid until OnSent(ticket).
  // header.payload_bytes is set by this call. Sending to a lost peer completes with Unavailable.
  virtual void Send(PeerId peer, const MessageHeader& header, Pieces payload, Ticket ticket) = 0;

  // Ends the connection by force and forgets the peer. Everything outstanding on it is completed
  // by later calls of Progress: OK where it got through meanwhile, else Cancelled. Until then its
  // buffers may be touched. No OnPeerLost follows here; the other side loses its peer.
  virtual void Disconnect(PeerId peer) = 0;

  // As if the connection had broken by itself, of `why`, which is Unavailable: what is outstanding
  // on it completes, and both sides lose their peer. Does nothing where the peer is lost already.
  virtual void Break(PeerId peer, const absl::Status& why) = 0;
};

}  // namespace crossmesh
