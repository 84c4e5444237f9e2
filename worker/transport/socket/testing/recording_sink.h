#pragma once

#include "worker/transport/transport.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

// Writes down in order what it is told, and holds the messages. Must be destroyed, or its messages,
// before the transport. Thread-compatible.
class RecordingSink final : public TransportSink {
 public:
  // "message 5" with its sequence; "sent 1 OK" and "received 1 OK" with the ticket and the code of
  // the status; "lost 1 UNAVAILABLE" with the peer.
  std::vector<std::string> events;
  std::vector<absl::Status> losses;
  std::vector<std::unique_ptr<IncomingMessage>> messages;
  // Is called at the end of each.
  std::function<void()> then = [] {};

  // What came since the last call.
  std::vector<std::string> TakeEvents() { return std::exchange(events, {}); }

  void OnMessage(std::unique_ptr<IncomingMessage> message) override {
    events.push_back(absl::StrCat("message ", message->header().sequence));
    messages.push_back(std::move(message));
    then();
  }
  void OnSent(Ticket ticket, const absl::Status& status) override {
    events.push_back(absl::StrCat("sent ", ticket, " ", absl::StatusCodeToString(status.code())));
    then();
  }
  void OnReceived(Ticket ticket, const absl::Status& status) override {
    events.push_back(
        absl::StrCat("received ", ticket, " ", absl::StatusCodeToString(status.code())));
    then();
  }
  void OnPeerLost(PeerId peer, const absl::Status& status) override {
    events.push_back(
        absl::StrCat("lost ", peer.value(), " ", absl::StatusCodeToString(status.code())));
    losses.push_back(status);
    then();
  }
};

}  // namespace crossmesh
