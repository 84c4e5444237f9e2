#include "worker/transport/striped/striped_transport.h"

#include "common/base/check.h"
#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/transport/striped/lane_pairs.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <sys/epoll.h>

namespace crossmesh {
namespace {

// A message takes a lane's time beyond that of its payload: about that of so many bytes.
constexpr int64_t kMessageLoadBytes = 4096;

}  // namespace

// The transport of one NIC, and whose lanes its peers are. Messages and what becomes of receiving
// them pass through: they have tickets of the sink's own.
class StripedTransport::Nic final : public TransportSink {
 public:
  explicit Nic(StripedTransport& striped) : striped_(striped) {}

  std::unique_ptr<Transport> transport;
  // By its peers, which are lanes that are open.
  absl::flat_hash_map<PeerId, PeerId> peer_of_lane;

 private:
  void OnMessage(std::unique_ptr<IncomingMessage> message) override {
    striped_.sink_.OnMessage(std::move(message));
  }
  void OnSent(Ticket ticket, const absl::Status& status) override {
    striped_.OnLaneSent(ticket, status);
  }
  void OnReceived(Ticket ticket, const absl::Status& status) override {
    striped_.sink_.OnReceived(ticket, status);
  }
  void OnPeerLost(PeerId lane, const absl::Status& status) override {
    const auto node = peer_of_lane.extract(lane);
    if (!node.empty()) striped_.OnLaneLost(node.mapped(), status);
  }

  StripedTransport& striped_;
};

absl::StatusOr<std::unique_ptr<StripedTransport>> StripedTransport::Create(
    TransportSink& sink, std::span<const MakeNic> nics) {
  std::unique_ptr<StripedTransport> transport(new StripedTransport(sink));
  RETURN_IF_ERROR(transport->Open(nics));
  return transport;
}

absl::Status StripedTransport::Open(std::span<const MakeNic> nics) {
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.valid()) return absl::ErrnoToStatus(errno, "epoll_create1");
  StripedAddress address;
  for (const MakeNic& make : nics) {
    auto nic = std::make_unique<Nic>(*this);
    ASSIGN_OR_RETURN(nic->transport, make(*nic));
    // Only to wake the loop: Progress asks every NIC.
    const int fd = nic->transport->event_fd();
    epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return absl::ErrnoToStatus(errno, "epoll_ctl");
    }
    address.nics.push_back(nic->transport->address());
    nics_.push_back(std::move(nic));
  }
  ASSIGN_OR_RETURN(address_, address.Encode());
  return absl::OkStatus();
}

StripedTransport::StripedTransport(TransportSink& sink) : sink_(sink) {}

StripedTransport::~StripedTransport() = default;

Transport& StripedTransport::first() const { return *nics_[0]->transport; }

const StripedTransport::Peer& StripedTransport::FindPeer(PeerId peer) const {
  const auto found = peers_.find(peer);
  CHECK(found != peers_.end()) << "peer " << peer << " is not connected";
  return found->second;
}

int StripedTransport::useful_pieces_max(PeerId peer) const {
  return FindPeer(peer).useful_pieces_max;
}

absl::StatusOr<PeerId> StripedTransport::Connect(absl::string_view address) {
  ASSIGN_OR_RETURN(const StripedAddress to, StripedAddress::Decode(address));
  const PeerId id(++peers_made_);
  Peer& peer = peers_[id];
  const absl::Status connected = ConnectLanes(to, id, peer);
  // Lanes that were made before the bad one go with it.
  if (!connected.ok()) {
    Disconnect(id);
    return connected;
  }
  const Lane& lane = peer.lanes[0];
  peer.lanes_open = peer.lanes.size();
  peer.link = lane.nic->transport->link(lane.id);
  peer.useful_pieces_max = lane.nic->transport->useful_pieces_max(lane.id);
  return id;
}

absl::Status StripedTransport::ConnectLanes(const StripedAddress& to, PeerId id, Peer& peer) {
  absl::Status refused;
  for (const LanePair& pair : LanePairs(nics_.size(), to.nics.size())) {
    Nic& nic = *nics_[pair.local];
    const absl::StatusOr<PeerId> lane = nic.transport->Connect(to.nics[pair.remote]);
    // The address is at fault, not the way to one NIC.
    if (absl::IsInvalidArgument(lane.status())) return lane.status();
    if (!lane.ok()) {
      refused = lane.status();
      LogWarning("lane_left_out",
                 {{"nic", static_cast<int64_t>(pair.local)}, {"reason", refused.message()}});
      continue;
    }
    nic.peer_of_lane[*lane] = id;
    peer.lanes.push_back({.nic = &nic, .id = *lane});
    if (nic.transport->link(*lane) == "shm") break;
  }
  return peer.lanes.empty() ? refused : absl::OkStatus();
}

void StripedTransport::Send(PeerId peer, const MessageHeader& header, Pieces payload,
                            Ticket ticket) {
  const auto found = peers_.find(peer);
  if (found == peers_.end() || !found->second.lost.ok()) return refused_.push_back(ticket);
  std::vector<Lane>& lanes = found->second.lanes;
  const auto lane = std::ranges::min_element(lanes, {}, &Lane::load_bytes);
  const int64_t load_bytes = kMessageLoadBytes + static_cast<int64_t>(BytesOf(payload));
  lane->load_bytes += load_bytes;
  lane->nic->transport->Send(lane->id, header, payload,
                             AddSending({.peer = peer,
                                         .lane = static_cast<size_t>(lane - lanes.begin()),
                                         .load_bytes = load_bytes,
                                         .ticket = ticket}));
}

Ticket StripedTransport::AddSending(const Sending& sending) {
  if (free_.empty()) {
    free_.push_back(sending_.size());
    sending_.emplace_back();
  }
  const Ticket place = free_.back();
  free_.pop_back();
  sending_[place] = sending;
  return place;
}

void StripedTransport::OnLaneSent(Ticket ticket, const absl::Status& status) {
  const Sending sending = sending_[ticket];
  free_.push_back(ticket);
  const auto peer = peers_.find(sending.peer);
  if (peer != peers_.end()) {
    peer->second.lanes[sending.lane].load_bytes -= sending.load_bytes;
    return sink_.OnSent(sending.ticket, status);
  }
  // The other side, which lost the first lane, may have ended this one before we did.
  sink_.OnSent(sending.ticket, status.ok() ? status : absl::CancelledError("disconnected"));
}

void StripedTransport::Disconnect(PeerId peer) {
  const auto node = peers_.extract(peer);
  if (node.empty()) return;
  for (const Lane& lane : node.mapped().lanes) {
    if (lane.nic->peer_of_lane.erase(lane.id) > 0) lane.nic->transport->Disconnect(lane.id);
  }
}

void StripedTransport::Break(PeerId peer, const absl::Status& why) {
  const auto found = peers_.find(peer);
  if (found != peers_.end()) BreakLanes(found->second, why);
}

void StripedTransport::BreakLanes(Peer& peer, const absl::Status& why) {
  if (!peer.lost.ok()) return;
  peer.lost = why;
  for (const Lane& lane : peer.lanes) {
    if (lane.nic->peer_of_lane.contains(lane.id)) lane.nic->transport->Break(lane.id, why);
  }
}

void StripedTransport::OnLaneLost(PeerId id, const absl::Status& why) {
  Peer& peer = peers_.at(id);
  BreakLanes(peer, why);
  if (--peer.lanes_open == 0) lost_.push_back(id);
}

int StripedTransport::Progress() {
  due_.insert(due_.end(), lost_.begin(), lost_.end());
  lost_.clear();
  int handled = 0;
  for (const auto& nic : nics_) handled += nic->transport->Progress();
  handled += TellRefused();
  return handled + TellLosses();
}

int StripedTransport::TellRefused() {
  telling_.swap(refused_);
  for (const Ticket ticket : telling_) {
    sink_.OnSent(ticket, absl::UnavailableError("the peer is lost"));
  }
  const int told = static_cast<int>(telling_.size());
  telling_.clear();
  return told;
}

int StripedTransport::TellLosses() {
  int told = 0;
  // What the sink sends meanwhile to a peer that is lost fails before its loss is told.
  while (refused_.empty() && !due_.empty()) {
    const auto node = peers_.extract(due_.front());
    due_.erase(due_.begin());
    ++told;
    // Unless it was disconnected meanwhile.
    if (!node.empty()) sink_.OnPeerLost(node.key(), node.mapped().lost);
  }
  return told;
}

bool StripedTransport::Arm() {
  return refused_.empty() && lost_.empty() && due_.empty() &&
         std::ranges::all_of(nics_, [](const auto& nic) { return nic->transport->Arm(); });
}

}  // namespace crossmesh
