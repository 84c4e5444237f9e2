#include "tests/fuzz/hostile_network.h"

#include "common/base/check.h"

#include <array>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

enum class Action : uint8_t {
  kDeliver,
  kDrop,
  kRepeat,
  kDelay,
  kChangeHeader,
  kChangePayload,
  kResize,
  kForge,  // delivers a changed copy first
};
constexpr int kActions = 8;
constexpr int64_t kPayloadBytesMax = 1024;  // when a size is made up

}  // namespace

class HostileNetwork::Message final : public IncomingMessage {
 public:
  Message(HostileNetwork& network, Envelope envelope)
      : network_(network), envelope_(std::move(envelope)) {}
  ~Message() override {
    if (envelope_.sender.has_value()) {
      network_.completions_.push_back(
          {.transport = envelope_.sender->transport, .ticket = envelope_.sender->ticket});
    }
  }

  const MessageHeader& header() const override { return envelope_.header; }
  void Receive(Pieces into, Ticket ticket) override {
    CHECK_EQ(BytesOf(into), envelope_.payload.size());
    const iovec payload = PieceOf(envelope_.payload);
    CopyPieces({&payload, 1}, into);
    network_.completions_.push_back(
        {.transport = envelope_.to, .ticket = ticket, .received = true});
  }

 private:
  HostileNetwork& network_;
  Envelope envelope_;
};

// Peers are named by the number of their transport, which is its address as well.
class HostileNetwork::HostileTransport final : public Transport {
 public:
  HostileTransport(HostileNetwork& network, size_t number)
      : network_(network), number_(number), address_(absl::StrCat(number)) {}

  absl::string_view name() const override { return "hostile"; }
  const std::string& address() const override { return address_; }
  int64_t eager_bytes_max() const override { return 0; }
  int pieces_max() const override { return 4; }
  int useful_pieces_max(PeerId /*peer*/) const override { return 4; }
  absl::StatusOr<PeerId> Connect(absl::string_view address) override {
    uint64_t number = 0;
    CHECK(absl::SimpleAtoi(address, &number));
    return PeerId(number);
  }
  absl::string_view link(PeerId /*peer*/) const override { return "local"; }
  void Send(PeerId peer, const MessageHeader& header, Pieces payload, Ticket ticket) override {
    Envelope envelope{.to = peer.value(),
                      .header = header,
                      .payload = std::vector<std::byte>(BytesOf(payload)),
                      .sender = Sender{.transport = number_, .ticket = ticket}};
    envelope.header.payload_bytes = envelope.payload.size();
    const iovec copy = PieceOf(envelope.payload);
    CopyPieces(payload, {&copy, 1});
    network_.underway_.push_back(std::move(envelope));
  }
  // Peers are slow at worst here, and the tasks' stall limit is longer than their deadline.
  void Disconnect(PeerId peer) override { CHECK(false) << "peer " << peer.value(); }
  void Break(PeerId peer, const absl::Status& /*why*/) override { Disconnect(peer); }
  int Progress() override { return 0; }
  int event_fd() const override { return -1; }
  bool Arm() override { return true; }

 private:
  HostileNetwork& network_;
  const size_t number_;
  const std::string address_;
};

std::unique_ptr<Transport> HostileNetwork::AddSource(TransportSink& sink) {
  sinks_.push_back(&sink);
  return std::make_unique<HostileTransport>(*this, sinks_.size() - 1);
}

bool HostileNetwork::Step() {
  if (!completions_.empty()) {
    const Completion completion = completions_.front();
    completions_.pop_front();
    Complete(completion);
    return true;
  }
  if (underway_.empty()) return false;
  Envelope envelope = std::move(underway_.front());
  underway_.pop_front();
  DeliverOrHarm(std::move(envelope));
  return true;
}

void HostileNetwork::Complete(const Completion& completion) {
  TransportSink& sink = *sinks_[completion.transport];
  if (completion.received) {
    sink.OnReceived(completion.ticket, absl::OkStatus());
  } else {
    sink.OnSent(completion.ticket, absl::OkStatus());
  }
}

void HostileNetwork::Deliver(Envelope envelope) {
  TransportSink& sink = *sinks_[envelope.to];
  sink.OnMessage(std::make_unique<Message>(*this, std::move(envelope)));
}

void HostileNetwork::DeliverOrHarm(Envelope envelope) {
  const auto action = static_cast<Action>(input_.Byte() % kActions);
  Envelope copy = envelope;
  copy.sender.reset();
  switch (action) {
    case Action::kDeliver:
      return Deliver(std::move(envelope));
    case Action::kDrop:
      harmed_ = true;
      return Complete({.transport = envelope.sender->transport, .ticket = envelope.sender->ticket});
    case Action::kRepeat:
      Deliver(std::move(envelope));
      return Deliver(std::move(copy));
    case Action::kDelay:
      return underway_.push_back(std::move(envelope));
    case Action::kChangeHeader:
      harmed_ = true;
      ChangeHeader(envelope.header);
      return Deliver(std::move(envelope));
    case Action::kChangePayload:
    case Action::kResize:
      harmed_ = true;
      if (action == Action::kResize) {
        envelope.payload.resize(input_.Number(2) % kPayloadBytesMax);
        envelope.header.payload_bytes = envelope.payload.size();
      }
      ChangePayload(envelope);
      return Deliver(std::move(envelope));
    case Action::kForge:
      harmed_ = true;
      ChangeHeader(copy.header);
      ChangePayload(copy);
      Deliver(std::move(copy));
      return Deliver(std::move(envelope));
  }
}

void HostileNetwork::ChangeHeader(MessageHeader& header) {
  constexpr std::array<uint64_t, 4> kExtremes = {UINT64_MAX, uint64_t{1} << 63, uint64_t{1} << 31,
                                                 uint64_t{1} << 40};
  const int field = input_.Byte();
  const uint64_t value =
      (field & 0x80) != 0 ? kExtremes[input_.Byte() % kExtremes.size()] : input_.Byte();
  switch (field % 8) {
    case 0:
      header.token_low = value;
      break;
    case 1:
      header.operation = value;
      break;
    case 2:
      header.epoch = value;
      break;
    case 3:
      header.instance = static_cast<uint32_t>(value);
      break;
    case 4:
      header.channel = static_cast<uint32_t>(value);
      break;
    case 5:
      header.sequence = value;
      break;
    default:  // most of what is done with a message depends on it
      header.kind = static_cast<uint32_t>(value % 8);
      break;
  }
}

void HostileNetwork::ChangePayload(Envelope& envelope) {
  if (envelope.payload.empty()) return;
  const size_t place = input_.Number(2) % envelope.payload.size();
  envelope.payload[place] ^= static_cast<std::byte>(input_.Byte());
}

}  // namespace crossmesh
