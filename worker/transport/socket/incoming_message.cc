#include "worker/transport/socket/incoming_message.h"

#include "common/base/check.h"
#include "worker/transport/socket/incoming_stream.h"

#include <algorithm>
#include <span>
#include <utility>

#include <absl/status/status.h>

namespace crossmesh {
namespace {

constexpr size_t kPageBytes = 4096;

}  // namespace

SocketMessage::SocketMessage(IncomingStream& stream, SinkQueue& told, Announced announced)
    : stream_(&stream), told_(told), announced_(std::move(announced)) {
  std::ranges::copy(std::exchange(announced_.payload, {}), payload_.begin());
  stream.Hold(*this);
}

SocketMessage::~SocketMessage() {
  if (stream_ != nullptr) stream_->Drop(*this);
}

void SocketMessage::Receive(Pieces into, Ticket ticket) {
  CHECK(!std::exchange(received_, true)) << "the message was received already";
  CHECK_EQ(BytesOf(into), announced_.header.payload_bytes);
  if (announced_.whole) return ReceiveWhole(into, ticket);
  if (stream_ != nullptr) return stream_->Receive(*this, into, ticket);
  told_.AddReceived(ticket, absl::UnavailableError("the connection to the sender has ended"));
}

void SocketMessage::ReceiveWhole(Pieces into, Ticket ticket) {
  PieceCursor(into).Fill(std::span(payload_).first(announced_.header.payload_bytes));
  if (stream_ != nullptr) stream_->Drop(*this);
  told_.AddReceived(ticket, absl::OkStatus());
}

int64_t SocketMessage::pages() const {
  return 1 + static_cast<int64_t>(announced_.remote.size() * sizeof(iovec) / kPageBytes);
}

}  // namespace crossmesh
