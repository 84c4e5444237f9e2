#include "tests/simulation/simulated_transport.h"

#include "common/base/check.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

// One connection, of which each side may be connected, by a peer of its own.
struct SimulatedFabric::Connection {
  struct Side {
    SimulatedTransport* transport = nullptr;
    std::optional<PeerId> peer;
    std::vector<std::shared_ptr<SimulatedTransport::Transfer>> sending;
    std::vector<std::shared_ptr<SimulatedTransport::Transfer>> receiving;
  };
  std::shared_ptr<SimulatedStream> stream;
  std::string from;
  std::string to;
  Side sides[2];
};

struct SimulatedTransport::Transfer {
  std::shared_ptr<Connection> connection;
  int sending_side = 0;
  MessageHeader header;
  Pieces payload;  // the sender's, until it has left
  Ticket sent = 0;
  Pieces into;  // the receiver's
  Ticket received = 0;
};

class SimulatedTransport::Message final : public IncomingMessage {
 public:
  Message(SimulatedTransport& transport, std::shared_ptr<Transfer> transfer)
      : transport_(transport), transfer_(std::move(transfer)), header_(transfer_->header) {}
  ~Message() override {
    if (transfer_ == nullptr) return;
    const std::shared_ptr<Transfer> dropped = transfer_;
    SimulatedTransport* const sender = dropped->connection->sides[dropped->sending_side].transport;
    dropped->connection->stream->Send(
        1 - dropped->sending_side, "drops a payload",
        [sender, dropped] { sender->FinishSend(dropped, absl::OkStatus()); });
  }

  const MessageHeader& header() const override { return header_; }
  void Receive(Pieces into, Ticket ticket) override {
    transport_.Take(std::exchange(transfer_, nullptr), into, ticket);
  }

 private:
  SimulatedTransport& transport_;
  std::shared_ptr<Transfer> transfer_;  // null after Receive
  const MessageHeader header_;
};

SimulatedTransport::SimulatedTransport(SimulatedFabric& fabric, SimulatedNode& node,
                                       TransportSink& sink)
    : fabric_(fabric),
      node_(node),
      sink_(sink),
      address_(absl::StrCat(node.name(), "#", node.life())),
      event_fd_(*EventFd::Create()) {
  fabric_.transports_[address_] = this;
}

SimulatedTransport::~SimulatedTransport() {
  fabric_.transports_.erase(address_);
  for (const std::weak_ptr<Connection>& weak : connections_) {
    const std::shared_ptr<Connection> connection = weak.lock();
    if (connection == nullptr) continue;
    for (Connection::Side& side : connection->sides) {
      if (side.transport != this) continue;
      side.sending.clear();
      side.receiving.clear();
    }
  }
  std::erase_if(fabric_.half_open_, [this](const std::shared_ptr<Connection>& connection) {
    return connection->from == address_ || connection->to == address_;
  });
}

absl::StatusOr<PeerId> SimulatedTransport::Connect(absl::string_view address) {
  const PeerId peer(++peers_made_);
  const auto to = fabric_.transports_.find(std::string(address));
  if (to == fabric_.transports_.end()) {
    Tell([this, peer, address = std::string(address)] {
      sink_.OnPeerLost(peer, absl::UnavailableError(absl::StrCat(address, " is gone")));
    });
    return peer;
  }
  const auto answered =
      std::ranges::find_if(fabric_.half_open_, [&](const std::shared_ptr<Connection>& connection) {
        return connection->from == address && connection->to == address_ &&
               connection->stream->is_open(1);
      });
  std::shared_ptr<Connection> connection;
  int side = 0;
  if (answered != fabric_.half_open_.end()) {
    connection = *answered;
    fabric_.half_open_.erase(answered);
    side = 1;
  } else {
    connection = std::make_shared<Connection>();
    connection->from = address_;
    connection->to = std::string(address);
    connection->sides[0].transport = this;
    connection->sides[1].transport = to->second;
    connection->stream = fabric_.network_.Open(
        node_, to->second->node_, [connection](const std::shared_ptr<SimulatedStream>& /*stream*/) {
          connection->sides[1].transport->Attach(connection, 1);
        });
    Attach(connection, 0);
    fabric_.half_open_.push_back(connection);
    std::erase_if(connections_, [](const auto& weak) { return weak.expired(); });
    connections_.push_back(connection);
    to->second->connections_.push_back(connection);
  }
  connection->sides[side].peer = peer;
  peers_[peer] = {connection, side};
  return peer;
}

void SimulatedTransport::Attach(const std::shared_ptr<Connection>& connection, int side) {
  connection->stream->Hear(side, [this, connection, side](const absl::Status& status) {
    OnEnd(connection, side, status);
  });
}

void SimulatedTransport::OnEnd(const std::shared_ptr<Connection>& connection, int side,
                               const absl::Status& status) {
  std::erase(fabric_.half_open_, connection);
  const absl::Status lost = absl::UnavailableError(status.message());
  CompleteAll(*connection, side, lost);
  const std::optional<PeerId> peer = std::exchange(connection->sides[side].peer, std::nullopt);
  if (!peer.has_value()) return;
  peers_.erase(*peer);
  Tell([this, peer = *peer, lost] { sink_.OnPeerLost(peer, lost); });
}

void SimulatedTransport::CompleteAll(Connection& connection, int side, const absl::Status& status) {
  for (const auto& transfer : std::exchange(connection.sides[side].sending, {})) {
    Tell([this, ticket = transfer->sent, status] { sink_.OnSent(ticket, status); });
  }
  for (const auto& transfer : std::exchange(connection.sides[side].receiving, {})) {
    Tell([this, ticket = transfer->received, status] { sink_.OnReceived(ticket, status); });
  }
}

void SimulatedTransport::Send(PeerId peer, const MessageHeader& header, Pieces payload,
                              Ticket ticket) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) {
    Tell([this, ticket] { sink_.OnSent(ticket, absl::UnavailableError("the peer is lost")); });
    return;
  }
  const auto& [connection, side] = found->second;
  auto transfer = std::make_shared<Transfer>(Transfer{.connection = connection,
                                                      .sending_side = side,
                                                      .header = header,
                                                      .payload = payload,
                                                      .sent = ticket});
  transfer->header.payload_bytes = BytesOf(payload);
  connection->sides[side].sending.push_back(transfer);
  SimulatedTransport* const receiver = connection->sides[1 - side].transport;
  connection->stream->Send(side, "has a message", [receiver, transfer] {
    receiver->Tell([receiver, transfer] {
      receiver->sink_.OnMessage(std::make_unique<Message>(*receiver, transfer));
    });
  });
}

void SimulatedTransport::Take(const std::shared_ptr<Transfer>& transfer, Pieces into,
                              Ticket ticket) {
  Connection& connection = *transfer->connection;
  const int side = 1 - transfer->sending_side;
  transfer->into = into;
  transfer->received = ticket;
  if (!connection.stream->is_open(side)) {
    Tell([this, ticket] { sink_.OnReceived(ticket, absl::UnavailableError("the peer is lost")); });
    return;
  }
  connection.sides[side].receiving.push_back(transfer);
  SimulatedTransport* const sender = connection.sides[1 - side].transport;
  connection.stream->Send(side, "is asked for a payload", [this, sender, transfer, side] {
    std::string bytes;
    for (const iovec& piece : transfer->payload) {
      bytes.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
    }
    sender->FinishSend(transfer, absl::OkStatus());
    transfer->connection->stream->Send(
        1 - side, "gets a payload",
        [this, transfer, bytes = std::move(bytes)] { PutInPlace(transfer, bytes); });
  });
}

void SimulatedTransport::PutInPlace(const std::shared_ptr<Transfer>& transfer,
                                    const std::string& bytes) {
  SimulatedWorld& world = node_.world();
  std::string arrived = bytes;
  if (!arrived.empty() && world.Happens(fabric_.flips_)) {
    arrived[world.Pick(static_cast<int>(arrived.size()))] ^= static_cast<char>(1 << world.Pick(8));
    world.Log(node_.name(), "gets a flipped bit");
  }
  const iovec whole{.iov_base = arrived.data(), .iov_len = arrived.size()};
  CopyPieces(Pieces(&whole, arrived.empty() ? 0 : 1), transfer->into);
  std::erase(transfer->connection->sides[1 - transfer->sending_side].receiving, transfer);
  Tell([this, ticket = transfer->received] { sink_.OnReceived(ticket, absl::OkStatus()); });
}

void SimulatedTransport::FinishSend(const std::shared_ptr<Transfer>& transfer,
                                    const absl::Status& status) {
  auto& sending = transfer->connection->sides[transfer->sending_side].sending;
  if (std::erase(sending, transfer) == 0) return;
  Tell([this, ticket = transfer->sent, status] { sink_.OnSent(ticket, status); });
}

void SimulatedTransport::Disconnect(PeerId peer) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  const auto [connection, side] = found->second;
  peers_.erase(found);
  connection->sides[side].peer.reset();
  connection->stream->End(side, absl::UnavailableError("disconnected"));
  CompleteAll(*connection, side, absl::CancelledError("disconnected"));
}

void SimulatedTransport::Break(PeerId peer, const absl::Status& why) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  const auto [connection, side] = found->second;
  connection->stream->End(side, why);
  OnEnd(connection, side, why);
}

int SimulatedTransport::Progress() {
  int handled = 0;
  for (; !told_.empty(); ++handled) {
    const std::function<void()> told = std::move(told_.front());
    told_.pop_front();
    told();
  }
  return handled;
}

}  // namespace crossmesh
