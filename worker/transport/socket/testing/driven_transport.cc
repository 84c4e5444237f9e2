#include "worker/transport/socket/testing/driven_transport.h"

#include "common/base/check.h"
#include "common/testing/status_matchers.h"

#include <cerrno>
#include <span>
#include <utility>

#include <gtest/gtest.h>
#include <poll.h>

namespace crossmesh {

DrivenTransport::DrivenTransport(const Options& options) {
  auto transport = SocketTransport::Create(sink, {.interface = "lo",
                                                  .shared_memory = options.shared_memory,
                                                  .handshake_limit = options.handshake_limit});
  CHECK_OK(transport);
  transport_ = *std::move(transport);
}

PeerId DrivenTransport::ConnectTo(const DrivenTransport& other) {
  const absl::StatusOr<PeerId> peer = transport_->Connect(other->address());
  EXPECT_OK(peer);
  return peer.value_or(PeerId(0));
}

void DrivenTransport::Send(PeerId peer, Ticket ticket, std::string payload) {
  transport_->Send(peer, {.sequence = ticket}, Keep(std::move(payload)).pieces, ticket);
}

void DrivenTransport::Receive(size_t index, Ticket ticket) {
  IncomingMessage& message = *sink.messages.at(index);
  message.Receive(Keep(std::string(message.header().payload_bytes, '\0')).pieces, ticket);
}

int DrivenTransport::WaitAndProgress() {
  EXPECT_TRUE(WaitReadable());
  return transport_->Progress();
}

bool DrivenTransport::Run(std::initializer_list<DrivenTransport*> all,
                          absl::FunctionRef<bool()> done) {
  while (!done()) {
    int handled = 0;
    bool armed = true;
    std::vector<pollfd> waits;
    for (const DrivenTransport* transport : all) {
      handled += (*transport)->Progress();
      armed = (*transport)->Arm() && armed;
      waits.push_back({.fd = (*transport)->event_fd(), .events = POLLIN});
    }
    if (done()) return true;
    if (handled == 0 && armed && poll(waits.data(), waits.size(), 30'000) == 0) return false;
  }
  return true;
}

bool DrivenTransport::IsReadable(int wait_ms) const {
  pollfd wait = {.fd = transport_->event_fd(), .events = POLLIN};
  int ready = 0;
  while ((ready = poll(&wait, 1, wait_ms)) < 0) CHECK_EQ(errno, EINTR);
  return ready > 0;
}

DrivenTransport::Memory& DrivenTransport::Keep(std::string bytes) {
  Memory& memory = *kept_.emplace_back(std::make_unique<Memory>());
  memory.bytes = std::move(bytes);
  if (!memory.bytes.empty()) memory.pieces = {PieceOf(std::as_bytes(std::span(memory.bytes)))};
  return memory;
}

}  // namespace crossmesh
