#include "worker/transport/testing/inprocess_transport.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include <absl/status/status.h>

namespace crossmesh {
namespace {

// Events handled by one Progress, so that a flood does not keep the loop from its other work.
constexpr int kEventsMax = 256;

void Flip(uint64_t bit, Pieces pieces) {
  uint64_t byte = bit / 8;
  while (byte >= pieces[0].iov_len) {
    byte -= pieces[0].iov_len;
    pieces = pieces.subspan(1);
  }
  static_cast<std::byte*>(pieces[0].iov_base)[byte] ^= std::byte{1} << (bit % 8);
}

}  // namespace

class InProcessTransport::Message final : public PooledMessage {
 public:
  Message(InProcessTransport& transport, InProcessFabric::Transfer& transfer)
      : transport_(transport), transfer_(&transfer) {}
  ~Message() override {
    if (transfer_ != nullptr) transport_.fabric_.Drop(*transfer_);
  }

  const MessageHeader& header() const override { return header_; }

  void Receive(Pieces into, Ticket ticket) override {
    CHECK(transfer_ != nullptr) << "the message was received already";
    CHECK_EQ(BytesOf(into), header_.payload_bytes);
    transport_.receives_.push_back({std::exchange(transfer_, nullptr), into, ticket});
  }

 private:
  InProcessTransport& transport_;
  InProcessFabric::Transfer* transfer_;  // none after Receive
  const MessageHeader header_ = transfer_->header;
};

absl::StatusOr<std::unique_ptr<InProcessTransport>> InProcessTransport::Create(
    InProcessFabric& fabric, TransportSink& sink) {
  ASSIGN_OR_RETURN(InProcessFabric::Endpoint * endpoint, fabric.Attach());
  return std::unique_ptr<InProcessTransport>(new InProcessTransport(fabric, sink, *endpoint));
}

InProcessTransport::~InProcessTransport() {
  fabric_.Detach(endpoint_);
  for (const PendingReceive& receive : receives_) fabric_.Drop(*receive.transfer);
}

absl::StatusOr<PeerId> InProcessTransport::Connect(absl::string_view address) {
  return fabric_.Connect(endpoint_, address);
}

void InProcessTransport::Send(PeerId peer, const MessageHeader& header, Pieces payload,
                              Ticket ticket) {
  fabric_.Send(endpoint_, peer, header, payload, ticket);
}

void InProcessTransport::Disconnect(PeerId peer) { fabric_.Disconnect(endpoint_, peer); }

void InProcessTransport::Break(PeerId peer, const absl::Status& why) {
  fabric_.Break(endpoint_, peer, why.message());
}

int InProcessTransport::Progress() {
  fabric_.Tick(endpoint_);
  int handled = RunReceives();
  while (handled < kEventsMax) {
    std::optional<InProcessFabric::Event> event = fabric_.NextEvent(endpoint_);
    if (!event.has_value()) break;
    ++handled;
    if (const auto* sent = std::get_if<InProcessFabric::Completion>(&*event)) {
      sink_.OnSent(sent->ticket, sent->status);
    } else if (auto* const* transfer = std::get_if<InProcessFabric::Transfer*>(&*event)) {
      sink_.OnMessage(std::unique_ptr<Message>(new (pool_) Message(*this, **transfer)));
    } else if (const auto* lost = std::get_if<InProcessFabric::Loss>(&*event)) {
      // What was to be received from this peer ends before its loss is told.
      handled += RunReceives();
      sink_.OnPeerLost(lost->peer, lost->status);
    }
  }
  return handled;
}

bool InProcessTransport::Arm() { return receives_.empty() && fabric_.Arm(endpoint_); }

int InProcessTransport::RunReceives() {
  if (receives_.empty()) return 0;
  running_.swap(receives_);
  for (const PendingReceive& receive : running_) {
    sink_.OnReceived(receive.ticket, RunReceive(receive));
  }
  const int handled = static_cast<int>(running_.size());
  running_.clear();
  return handled;
}

absl::Status InProcessTransport::RunReceive(const PendingReceive& receive) {
  InProcessFabric::Transfer& transfer = *receive.transfer;
  RETURN_IF_ERROR(fabric_.BeginCopy(transfer));
  CopyPieces(transfer.payload, receive.into);
  if (const std::optional<uint64_t> bit = transfer.faults.flipped_bit) Flip(*bit, receive.into);
  fabric_.EndCopy(transfer);
  return absl::OkStatus();
}

}  // namespace crossmesh
