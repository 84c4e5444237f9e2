#pragma once

#include "worker/transport/transport.h"

#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// A transport that only notes what it is asked for: the test says what comes of it. For tests that
// call what stands above a transport by themselves. Thread-compatible.
class RecordingTransport final : public Transport {
 public:
  struct Sent {
    PeerId peer;
    MessageHeader header;
    std::vector<iovec> payload;
    Ticket ticket = 0;
  };

  absl::string_view name() const override { return "recording"; }
  const std::string& address() const override { return address_; }
  int64_t eager_bytes_max() const override { return 0; }
  int pieces_max() const override { return 4; }
  int useful_pieces_max(PeerId /*peer*/) const override { return 4; }
  void Lend(const LentMemory& memory) override { lent.push_back(memory); }
  // The first peer is 1.
  absl::StatusOr<PeerId> Connect(absl::string_view to) override {
    connected.emplace_back(to);
    return PeerId(connected.size());
  }
  absl::string_view link(PeerId /*peer*/) const override { return "local"; }
  int lanes(PeerId /*peer*/) const override { return lane_count; }
  void Send(PeerId peer, const MessageHeader& header, Pieces payload, Ticket ticket) override {
    Sent& message = sent.emplace_back(Sent{.peer = peer, .header = header, .ticket = ticket});
    message.header.payload_bytes = BytesOf(payload);
    message.payload.assign(payload.begin(), payload.end());
  }
  void Disconnect(PeerId peer) override { disconnected.push_back(peer); }
  void Break(PeerId /*peer*/, const absl::Status& /*why*/) override {}
  int Progress() override { return 0; }
  int event_fd() const override { return -1; }  // no loop drives it

  int lane_count = 1;
  std::vector<LentMemory> lent;
  std::vector<std::string> connected;
  std::vector<Sent> sent;
  std::vector<PeerId> disconnected;

 private:
  const std::string address_ = "its own address";
};

// A message that only notes into what memory it is received.
class RecordedMessage final : public IncomingMessage {
 public:
  struct Receipt {
    MessageHeader header;
    std::vector<iovec> into;
    Ticket ticket = 0;
  };

  // `receipts` must outlive the message.
  RecordedMessage(const MessageHeader& header, std::vector<Receipt>& receipts)
      : header_(header), receipts_(receipts) {}

  const MessageHeader& header() const override { return header_; }
  void Receive(Pieces into, Ticket ticket) override {
    receipts_.push_back({.header = header_, .into = {into.begin(), into.end()}, .ticket = ticket});
  }

 private:
  const MessageHeader header_;
  std::vector<Receipt>& receipts_;
};

}  // namespace crossmesh
