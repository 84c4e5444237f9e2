#include "worker/transport/testing/transport_node.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(1);
constexpr std::byte kOverwritten{0xA5};

}  // namespace

absl::StatusOr<std::unique_ptr<TransportNode>> TransportNode::Create(const MakeTransport& make,
                                                                     Arrival arrival) {
  std::unique_ptr<TransportNode> node(new TransportNode(arrival));
  ASSIGN_OR_RETURN(node->loop_, EventLoop::Create(node->clock_, {.name = "node"}));
  ASSIGN_OR_RETURN(node->transport_, make(*node));
  node->loop_->AddSource(*node->transport_);
  node->loop_->Start();
  return node;
}

TransportNode::~TransportNode() {
  if (loop_ == nullptr) return;
  loop_->Stop();
  held_.clear();
  if (transport_ == nullptr) return;
  loop_->RemoveSource(*transport_);
  transport_.reset();
}

absl::StatusOr<PeerId> TransportNode::Connect(absl::string_view address) {
  absl::StatusOr<PeerId> peer = absl::InternalError("did not run");
  Call([&] { peer = transport_->Connect(address); });
  return peer;
}

absl::string_view TransportNode::Link(PeerId peer) {
  absl::string_view link;
  Call([&] { link = transport_->link(peer); });
  return link;
}

int TransportNode::Lanes(PeerId peer) {
  int lanes = 0;
  Call([&] { lanes = transport_->lanes(peer); });
  return lanes;
}

void TransportNode::Disconnect(PeerId peer) {
  Call([&] { transport_->Disconnect(peer); });
}

void TransportNode::Break(PeerId peer, const absl::Status& why) {
  Call([&] { transport_->Break(peer, why); });
}

Ticket TransportNode::Send(PeerId peer, const MessageHeader& header,
                           std::vector<std::byte> payload) {
  Ticket ticket = 0;
  Call([&] {
    SendOnLoop(peer, header, std::move(payload));
    ticket = last_ticket_;
  });
  return ticket;
}

Ticket TransportNode::SendMany(PeerId peer, int count, int64_t bytes) {
  Ticket first = 0;
  Call([&] {
    first = last_ticket_ + 1;
    for (int i = 0; i < count; ++i) {
      const std::byte fill{static_cast<unsigned char>(i)};
      SendOnLoop(peer, {.sequence = static_cast<uint64_t>(i)},
                 std::vector<std::byte>(static_cast<size_t>(bytes), fill));
    }
  });
  return first;
}

void TransportNode::ReceiveHeld(size_t first, size_t count) {
  Call([&] {
    for (size_t i = first; i < first + count; ++i) ReceiveOnLoop(std::move(held_[i]));
  });
}

void TransportNode::ReceiveHeldThen(size_t index, absl::FunctionRef<void()> then) {
  Call([&] {
    ReceiveOnLoop(std::move(held_[index]));
    then();
  });
}

void TransportNode::DropHeld(size_t index) {
  Call([&] { held_[index].reset(); });
}

void TransportNode::ReceiveHeldAndDisconnect(PeerId peer) {
  Call([&] {
    for (std::unique_ptr<IncomingMessage>& message : held_) ReceiveOnLoop(std::move(message));
    transport_->Disconnect(peer);
  });
}

bool TransportNode::WaitUntil(absl::FunctionRef<bool(const TransportRecord&)> condition) {
  const absl::Duration deadline = clock_.Monotonic() + kPatience;
  MutexLock lock(mutex_);
  while (!condition(record_)) {
    const absl::Duration left = deadline - clock_.Monotonic();
    if (left <= absl::ZeroDuration()) return false;
    changed_.WaitFor(mutex_, left);
  }
  return true;
}

TransportRecord TransportNode::record() const {
  MutexLock lock(mutex_);
  return record_;
}

bool TransportNode::FailedDestinationsUntouched() const {
  bool untouched = true;
  loop_->RunAndWait([&] {
    for (const std::vector<std::byte>& destination : failed_destinations_) {
      untouched = untouched && std::all_of(destination.begin(), destination.end(),
                                           [](std::byte value) { return value == kOverwritten; });
    }
  });
  return untouched;
}

void TransportNode::OnMessage(std::unique_ptr<IncomingMessage> message) {
  CheckNotInCall();
  Record([&](TransportRecord& record) { record.announced.push_back(message->header()); });
  switch (arrival_) {
    case Arrival::kReceive:
      in_call_ = true;
      ReceiveOnLoop(std::move(message));
      in_call_ = false;
      break;
    case Arrival::kPark:
      held_.push_back(std::move(message));
      break;
    case Arrival::kDrop:
      break;
  }
}

void TransportNode::OnSent(Ticket ticket, const absl::Status& status) {
  CheckNotInCall();
  auto sending = sending_.extract(ticket);
  Record([&](TransportRecord& record) {
    if (sending.empty()) {
      record.violations.push_back(absl::StrCat("send ", ticket, " completed, but is not open"));
    }
    record.sent[ticket] = status;
  });
  if (sending.empty()) return;
  // The buffer may be reused: a late read finds something else in it.
  const std::span<std::byte> payload = sending.mapped().memory();
  std::fill(payload.begin(), payload.end(), kOverwritten);
  if (sending.mapped().lent != nullptr) transport_->Reclaim(payload);
}

void TransportNode::OnReceived(Ticket ticket, const absl::Status& status) {
  CheckNotInCall();
  auto receiving = receiving_.extract(ticket);
  Record([&](TransportRecord& record) {
    if (receiving.empty()) {
      record.violations.push_back(absl::StrCat("receive ", ticket, " completed, but is not open"));
      return;
    }
    --record.receives_open;
    Receiving& finished = receiving.mapped();
    record.received.push_back({finished.header, status, {}});
    if (status.ok()) record.received.back().payload = std::move(finished.payload);
  });
  if (status.ok() || receiving.empty()) return;
  std::vector<std::byte>& destination = receiving.mapped().payload;
  std::fill(destination.begin(), destination.end(), kOverwritten);
  failed_destinations_.push_back(std::move(destination));
}

void TransportNode::OnPeerLost(PeerId peer, const absl::Status& status) {
  CheckNotInCall();
  const auto sends_open = std::count_if(sending_.begin(), sending_.end(), [&](const auto& sending) {
    return sending.second.peer == peer;
  });
  Record([&](TransportRecord& record) {
    record.lost.push_back({peer, status, static_cast<int>(sends_open)});
  });
}

void TransportNode::Call(absl::FunctionRef<void()> body) {
  const bool ran = loop_->RunAndWait([&] {
    in_call_ = true;
    body();
    in_call_ = false;
  });
  CHECK(ran) << "the node was stopped";
}

void TransportNode::CheckNotInCall() {
  if (!in_call_) return;
  Record([](TransportRecord& record) {
    record.violations.emplace_back("a callback came from inside a call");
  });
}

void TransportNode::SendOnLoop(PeerId peer, const MessageHeader& header,
                               std::vector<std::byte> payload) {
  const Ticket ticket = ++last_ticket_;
  Sending& sending = sending_[ticket];
  sending = {peer, std::move(payload)};
  if (std::ssize(sending.payload) > transport_->eager_bytes_max() && ticket % 2 == 0) {
    sending.lent = SealedMemory::Create(sending.payload.size());
    std::ranges::copy(sending.payload, sending.lent->bytes().begin());
    transport_->Lend(sending.lent->lent());
  }
  sending.pieces = Cut(sending.memory());
  transport_->Send(peer, header, sending.pieces, ticket);
}

void TransportNode::ReceiveOnLoop(std::unique_ptr<IncomingMessage> message) {
  CHECK(message != nullptr) << "a held message is received or dropped once";
  const Ticket ticket = ++last_ticket_;
  Receiving& receiving = receiving_[ticket];
  receiving.header = message->header();
  receiving.payload.resize(message->header().payload_bytes);
  Record([](TransportRecord& record) { ++record.receives_open; });
  receiving.pieces = Cut(receiving.payload);
  message->Receive(receiving.pieces, ticket);
}

std::vector<iovec> TransportNode::Cut(std::span<std::byte> memory) {
  std::vector<iovec> pieces;
  const int pieces_max = 1 + static_cast<int>(random_() % transport_->pieces_max());
  while (!memory.empty() && std::ssize(pieces) + 1 < pieces_max) {
    const size_t bytes = 1 + random_() % memory.size();
    pieces.push_back(PieceOf(memory.first(bytes)));
    memory = memory.subspan(bytes);
  }
  if (!memory.empty()) pieces.push_back(PieceOf(memory));
  return pieces;
}

void TransportNode::Record(absl::FunctionRef<void(TransportRecord&)> change) {
  MutexLock lock(mutex_);
  change(record_);
  changed_.SignalAll();
}

std::vector<std::byte> RandomBytes(std::mt19937_64& random, int64_t count) {
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

}  // namespace crossmesh
