#include "worker/transport/testing/inprocess_fabric.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"

#include <algorithm>

#include <absl/container/inlined_vector.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

void InProcessFabric::SetFaults(absl::string_view from, absl::string_view to,
                                const FaultPlan& faults) {
  MutexLock lock(mutex_);
  link_faults_[std::pair(std::string(from), std::string(to))] = faults;
}

void InProcessFabric::Cut(absl::string_view a, absl::string_view b) {
  MutexLock lock(mutex_);
  const Endpoint* first = FindLocked(a);
  const Endpoint* second = FindLocked(b);
  for (Connection& connection : connections_) {
    const Endpoint* left = connection.sides[0].endpoint;
    const Endpoint* right = connection.sides[1].endpoint;
    const bool between = (left == first && right == second) || (left == second && right == first);
    if (between && connection.open) BreakLocked(connection, "the link was cut");
  }
}

void InProcessFabric::Kill(absl::string_view address) {
  MutexLock lock(mutex_);
  Endpoint* endpoint = FindLocked(address);
  CHECK(endpoint != nullptr) << address << " is not an address of this fabric";
  RemoveLocked(*endpoint, "the endpoint was killed");
}

InProcessFabric::Endpoint::Endpoint(uint64_t new_number, EventFd new_event_fd)
    : number(new_number),
      address(absl::StrCat("crossmesh-inprocess:", number)),
      event_fd(std::move(new_event_fd)) {}

absl::StatusOr<InProcessFabric::Endpoint*> InProcessFabric::Attach() {
  ASSIGN_OR_RETURN(EventFd event_fd, EventFd::Create());
  MutexLock lock(mutex_);
  return &endpoints_.emplace_back(endpoints_.size(), std::move(event_fd));
}

void InProcessFabric::Detach(Endpoint& endpoint) {
  MutexLock lock(mutex_);
  RemoveLocked(endpoint, "the endpoint has closed");
  const auto copied_from = [&](const Transfer& transfer) {
    return transfer.state == Transfer::State::kCopying &&
           transfer.connection->sides[transfer.sending_side].endpoint == &endpoint;
  };
  while (std::any_of(transfers_.begin(), transfers_.end(), copied_from)) {
    copies_ended_.Wait(mutex_);
  }
}

absl::StatusOr<PeerId> InProcessFabric::Connect(Endpoint& endpoint, absl::string_view address) {
  MutexLock lock(mutex_);
  Endpoint* to = FindLocked(address);
  if (to == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", address.substr(0, 64), "' is not the address of an in-process transport"));
  }
  const PeerId peer(++endpoint.peers_made);
  if (!endpoint.alive || !to->alive) {
    endpoint.lost.push_back({peer, absl::UnavailableError(absl::StrCat(address, " is gone"))});
    Wake(endpoint);
    return peer;
  }
  const auto [connection, side] = ConnectLocked(endpoint, *to);
  connection->sides[side].peer = peer;
  endpoint.peers[peer] = {connection, side};
  return peer;
}

void InProcessFabric::Disconnect(Endpoint& endpoint, PeerId peer) {
  MutexLock lock(mutex_);
  std::erase_if(endpoint.lost, [&](const Loss& loss) { return loss.peer == peer; });
  const auto found = endpoint.peers.find(peer);
  if (found == endpoint.peers.end()) return;
  const auto [connection, side] = found->second;
  endpoint.peers.erase(found);
  connection->sides[side].peer.reset();
  if (!connection->open) return;
  const absl::Status ours = absl::CancelledError("disconnected");
  const absl::Status theirs =
      absl::UnavailableError(absl::StrCat(endpoint.address, " has disconnected"));
  CloseLocked(*connection, side == 0 ? ours : theirs, side == 0 ? theirs : ours);
}

void InProcessFabric::Break(Endpoint& endpoint, PeerId peer, absl::string_view why) {
  MutexLock lock(mutex_);
  const auto found = endpoint.peers.find(peer);
  if (found == endpoint.peers.end() || !found->second.first->open) return;
  BreakLocked(*found->second.first, why);
}

void InProcessFabric::Send(Endpoint& endpoint, PeerId peer, const MessageHeader& header,
                           Pieces payload, Ticket ticket) {
  MutexLock lock(mutex_);
  const auto found = endpoint.peers.find(peer);
  if (found == endpoint.peers.end()) {
    endpoint.sent.push_back({ticket, absl::UnavailableError("the peer is lost")});
    return Wake(endpoint);
  }
  const auto [connection, side] = found->second;
  MessageFaults faults;
  if (connection->open) {
    faults = connection->sides[side].faults.Next(BytesOf(payload));
    if (faults.cut) BreakLocked(*connection, "the fault plan cut the link");
  }
  if (!connection->open) {
    endpoint.sent.push_back({ticket, connection->sides[side].closed});
    return Wake(endpoint);
  }

  Transfer& transfer = NewTransferLocked();
  transfer = {.connection = connection,
              .sending_side = side,
              .header = header,
              .payload = payload,
              .ticket = ticket,
              .faults = faults};
  transfer.header.payload_bytes = BytesOf(payload);
  if (faults.drop) return;
  Endpoint& receiver = *connection->sides[1 - side].endpoint;
  receiver.inbox.push_back(&transfer);
  Wake(receiver);
}

void InProcessFabric::Tick(Endpoint& endpoint) {
  MutexLock lock(mutex_);
  for (Transfer* transfer : endpoint.inbox) {
    if (transfer->faults.delay_polls > 0) --transfer->faults.delay_polls;
  }
}

std::optional<InProcessFabric::Event> InProcessFabric::NextEvent(Endpoint& endpoint) {
  MutexLock lock(mutex_);
  const auto take_first = [](auto& queue) {
    Event event = std::move(queue.front());
    queue.erase(queue.begin());
    return event;
  };
  if (!endpoint.sent.empty()) return take_first(endpoint.sent);
  if (Transfer* message = TakeMessageLocked(endpoint); message != nullptr) return message;
  if (!endpoint.lost.empty()) return take_first(endpoint.lost);
  return std::nullopt;
}

bool InProcessFabric::Arm(Endpoint& endpoint) {
  MutexLock lock(mutex_);
  if (!endpoint.sent.empty() || !endpoint.inbox.empty() || !endpoint.lost.empty()) return false;
  endpoint.event_fd.Drain();
  endpoint.armed = true;
  return true;
}

absl::Status InProcessFabric::BeginCopy(Transfer& transfer) {
  MutexLock lock(mutex_);
  Connection& connection = *transfer.connection;
  if (transfer.state == Transfer::State::kDone) {
    const absl::Status status = connection.sides[1 - transfer.sending_side].closed;
    ReleaseLocked(transfer);
    return status;
  }
  transfer.state = Transfer::State::kCopying;
  ++connection.copying;
  return absl::OkStatus();
}

void InProcessFabric::EndCopy(Transfer& transfer) {
  MutexLock lock(mutex_);
  Connection& connection = *transfer.connection;
  --connection.copying;
  FinishLocked(transfer, absl::OkStatus());
  ReleaseLocked(transfer);
  if (!connection.open && connection.copying == 0) ReportLossLocked(connection);
  copies_ended_.SignalAll();
}

void InProcessFabric::Drop(Transfer& transfer) {
  MutexLock lock(mutex_);
  if (transfer.state != Transfer::State::kDone) FinishLocked(transfer, absl::OkStatus());
  ReleaseLocked(transfer);
}

InProcessFabric::Endpoint* InProcessFabric::FindLocked(absl::string_view address) {
  const auto found = std::find_if(
      endpoints_.begin(), endpoints_.end(),
      [&](const Endpoint& endpoint) { return absl::string_view(endpoint.address) == address; });
  return found == endpoints_.end() ? nullptr : &*found;
}

std::pair<InProcessFabric::Connection*, int> InProcessFabric::ConnectLocked(Endpoint& from,
                                                                            Endpoint& to) {
  for (Connection& connection : connections_) {
    // Connections to oneself have one side that connects; a second Connect makes another.
    if (connection.open && &from != &to && connection.sides[0].endpoint == &to &&
        connection.sides[1].endpoint == &from && !connection.sides[1].peer.has_value()) {
      return {&connection, 1};
    }
  }
  connections_.push_back({.sides = {MakeSideLocked(from, to), MakeSideLocked(to, from)}});
  return {&connections_.back(), 0};
}

InProcessFabric::Side InProcessFabric::MakeSideLocked(Endpoint& from, const Endpoint& to) {
  const auto own = link_faults_.find(std::pair(from.address, to.address));
  const FaultPlan& plan = own == link_faults_.end() ? faults_ : own->second;
  // Named by the two ends and by how often they connected before, which other threads do not
  // change.
  const auto before =
      std::count_if(connections_.begin(), connections_.end(), [&](const Connection& connection) {
        const Endpoint* left = connection.sides[0].endpoint;
        const Endpoint* right = connection.sides[1].endpoint;
        return (left == &from && right == &to) || (left == &to && right == &from);
      });
  const uint64_t link = (from.number << 42) | (to.number << 21) | static_cast<uint64_t>(before);
  return {.endpoint = &from, .faults = FaultSequence(plan, link)};
}

void InProcessFabric::CloseLocked(Connection& connection, const absl::Status& status_0,
                                  const absl::Status& status_1) {
  connection.open = false;
  connection.sides[0].closed = status_0;
  connection.sides[1].closed = status_1;
  for (const Side& side : connection.sides) {
    std::erase_if(side.endpoint->inbox,
                  [&](const Transfer* transfer) { return transfer->connection == &connection; });
  }
  for (Transfer& transfer : transfers_) {
    if (transfer.connection != &connection) continue;
    if (transfer.state == Transfer::State::kOnTheWay ||
        transfer.state == Transfer::State::kAnnounced) {
      FinishLocked(transfer, connection.sides[transfer.sending_side].closed);
    }
  }
  if (connection.copying == 0) ReportLossLocked(connection);
}

void InProcessFabric::BreakLocked(Connection& connection, absl::string_view why) {
  const absl::Status status = absl::UnavailableError(
      absl::StrCat("connection ", connection.sides[0].endpoint->address, " to ",
                   connection.sides[1].endpoint->address, ": ", why));
  CloseLocked(connection, status, status);
}

void InProcessFabric::RemoveLocked(Endpoint& endpoint, absl::string_view why) {
  endpoint.alive = false;
  for (Connection& connection : connections_) {
    const bool ours =
        connection.sides[0].endpoint == &endpoint || connection.sides[1].endpoint == &endpoint;
    if (ours && connection.open) BreakLocked(connection, why);
  }
}

void InProcessFabric::ReportLossLocked(Connection& connection) {
  for (Side& side : connection.sides) {
    if (!side.peer.has_value()) continue;
    side.endpoint->lost.push_back({*side.peer, side.closed});
    side.endpoint->peers.erase(*side.peer);
    side.peer.reset();
    Wake(*side.endpoint);
  }
}

InProcessFabric::Transfer& InProcessFabric::NewTransferLocked() {
  if (free_transfers_.empty()) return transfers_.emplace_back();
  Transfer& transfer = *free_transfers_.back();
  free_transfers_.pop_back();
  return transfer;
}

void InProcessFabric::FinishLocked(Transfer& transfer, const absl::Status& status) {
  transfer.state = Transfer::State::kDone;
  Endpoint& sender = *transfer.connection->sides[transfer.sending_side].endpoint;
  sender.sent.push_back({transfer.ticket, status});
  Wake(sender);
  if (!transfer.held) free_transfers_.push_back(&transfer);
}

void InProcessFabric::ReleaseLocked(Transfer& transfer) {
  transfer.held = false;
  if (transfer.state == Transfer::State::kDone) free_transfers_.push_back(&transfer);
}

InProcessFabric::Transfer* InProcessFabric::TakeMessageLocked(Endpoint& endpoint) {
  // Streams whose next message is held back: a channel of a connection, or, where channels do not
  // overtake each other, all of a connection.
  absl::InlinedVector<std::pair<const Side*, uint64_t>, 8> blocked;
  for (auto place = endpoint.inbox.begin(); place != endpoint.inbox.end(); ++place) {
    Transfer& transfer = **place;
    const Side& from = transfer.connection->sides[transfer.sending_side];
    const uint64_t channel = from.faults.plan().reorder_channels ? transfer.header.channel : 0;
    const std::pair<const Side*, uint64_t> stream(&from, channel);
    if (std::find(blocked.begin(), blocked.end(), stream) != blocked.end()) continue;
    if (transfer.faults.delay_polls > 0) {
      blocked.push_back(stream);
      continue;
    }
    transfer.state = Transfer::State::kAnnounced;
    transfer.held = true;
    endpoint.inbox.erase(place);
    return &transfer;
  }
  return nullptr;
}

void InProcessFabric::Wake(Endpoint& endpoint) {
  if (!endpoint.armed) return;
  endpoint.armed = false;
  endpoint.event_fd.Signal();
}

}  // namespace crossmesh
