#include "worker/transport/socket/sink_queue.h"

namespace crossmesh {

int SinkQueue::TellTo(TransportSink& sink) {
  telling_.swap(events_);
  for (Event& event : telling_) {
    if (event.message != nullptr) {
      sink.OnMessage(std::move(event.message));
    } else if (event.receive) {
      sink.OnReceived(event.ticket, event.status);
    } else {
      sink.OnSent(event.ticket, event.status);
    }
  }
  const int told = static_cast<int>(telling_.size());
  telling_.clear();
  return told;
}

}  // namespace crossmesh
