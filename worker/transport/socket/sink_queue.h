#pragma once

#include "worker/transport/transport.h"

#include <memory>
#include <utility>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

// What the sink is to be told, in order. What finds something out, inside calls of the transport
// too, writes it down here; Progress tells. Thread-compatible.
class SinkQueue {
 public:
  void AddMessage(std::unique_ptr<IncomingMessage> message) {
    events_.push_back({.message = std::move(message)});
  }
  void AddSent(Ticket ticket, absl::Status status) {
    events_.push_back({.ticket = ticket, .status = std::move(status)});
  }
  void AddReceived(Ticket ticket, absl::Status status) {
    events_.push_back({.receive = true, .ticket = ticket, .status = std::move(status)});
  }

  bool empty() const { return events_.empty(); }
  // Tells what is there now; what the sink's answers add is for the next call. Returns how much.
  int TellTo(TransportSink& sink);
  // Messages that were not told yet.
  void Clear() { events_.clear(); }

 private:
  struct Event {
    std::unique_ptr<IncomingMessage> message;  // none: a completion
    bool receive = false;
    Ticket ticket = 0;
    absl::Status status;
  };

  std::vector<Event> events_;
  std::vector<Event> telling_;  // swapped with events_, so that both keep their memory
};

}  // namespace crossmesh
