#pragma once

#include "common/base/unique_fd.h"
#include "worker/transport/striped/striped_address.h"
#include "worker/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Several transports of one kind, one for each NIC of this host, as one transport. A peer is joined
// by lanes, which are connections from a NIC here to a NIC there (lane_pairs.h); inside a host,
// when that shares memory, by one. A message goes whole on the lane that has the least under way: a
// slow lane is kept as full as a fast one, and gets the next message when it has drained, so lanes
// carry what they can, at any rates and with any other traffic on their NICs.
//
// The loss of a lane is the loss of its peer: the other lanes are broken, and the sink is told when
// all are through. Lanes that no link leads to are left out from the start.
class StripedTransport final : public Transport {
 public:
  // Makes the transport of one NIC, which tells `sink`.
  using MakeNic = std::function<absl::StatusOr<std::unique_ptr<Transport>>(TransportSink& sink)>;

  // `sink` must outlive the transport. InvalidArgument: not 1 to StripedAddress::kNicsMax NICs, or
  // their addresses together are too long. ResourceExhausted: no file descriptors left. Else what a
  // NIC's maker says.
  static absl::StatusOr<std::unique_ptr<StripedTransport>> Create(TransportSink& sink,
                                                                  std::span<const MakeNic> nics);
  ~StripedTransport() override;

  // That of the NICs' transports, as is all else that does not depend on the peer.
  absl::string_view name() const override { return first().name(); }
  const std::string& address() const override { return address_; }
  int64_t eager_bytes_max() const override { return first().eager_bytes_max(); }
  int pieces_max() const override { return first().pieces_max(); }
  int useful_pieces_max(PeerId peer) const override;
  // Of the first NIC, whose lane is the one inside a host.
  void Lend(const LentMemory& memory) override { first().Lend(memory); }
  void Reclaim(std::span<const std::byte> memory) override { first().Reclaim(memory); }
  absl::StatusOr<PeerId> Connect(absl::string_view address) override;
  absl::string_view link(PeerId peer) const override { return FindPeer(peer).link; }
  int lanes(PeerId peer) const override { return static_cast<int>(FindPeer(peer).lanes.size()); }
  void Send(PeerId peer, const MessageHeader& header, Pieces payload, Ticket ticket) override;
  void Disconnect(PeerId peer) override;
  void Break(PeerId peer, const absl::Status& why) override;
  int Progress() override;
  int event_fd() const override { return epoll_.get(); }
  bool Arm() override;

 private:
  class Nic;

  struct Lane {
    Nic* nic = nullptr;
    PeerId id;               // of the NIC's transport
    int64_t load_bytes = 0;  // of messages that were sent and not completed
  };
  struct Peer {
    std::vector<Lane> lanes;
    absl::string_view link;
    int useful_pieces_max = 1;
    size_t lanes_open = 0;
    absl::Status lost;  // why, from the first lane that was
  };
  // A message on a lane; its place is the ticket there.
  struct Sending {
    PeerId peer;
    size_t lane = 0;
    int64_t load_bytes = 0;
    Ticket ticket = 0;  // the caller's
  };

  explicit StripedTransport(TransportSink& sink);

  absl::Status Open(std::span<const MakeNic> nics);
  Transport& first() const;
  const Peer& FindPeer(PeerId peer) const;
  absl::Status ConnectLanes(const StripedAddress& to, PeerId id, Peer& peer);
  void BreakLanes(Peer& peer, const absl::Status& why);
  Ticket AddSending(const Sending& sending);

  // What the NICs' transports tell.
  void OnLaneSent(Ticket ticket, const absl::Status& status);
  void OnLaneLost(PeerId peer, const absl::Status& why);

  int TellRefused();
  int TellLosses();

  TransportSink& sink_;
  UniqueFd epoll_;
  std::string address_;
  std::vector<std::unique_ptr<Nic>> nics_;
  uint64_t peers_made_ = 0;
  absl::flat_hash_map<PeerId, Peer> peers_;
  std::vector<Sending> sending_;
  std::vector<Ticket> free_;     // places of sending_
  std::vector<Ticket> refused_;  // sends to a peer that is lost
  std::vector<Ticket> telling_;  // swapped with refused_, so that both keep their memory
  // Peers without open lanes. What was received from them has been told when every transport has
  // made progress once more; then they are due.
  std::vector<PeerId> lost_;
  std::vector<PeerId> due_;
};

}  // namespace crossmesh
