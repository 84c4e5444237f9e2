#include "planner/pipeline/shared_ports.h"

#include <algorithm>

namespace crossmesh {

SharedPorts::SharedPorts(const TransferPorts& ports)
    : ports_(ports), streams_(ports.transfers()), port_(ports.size()), ends_(ports.transfers()) {}

void SharedPorts::Send(TransferIndex transfer, MicrobatchIndex microbatch, double seconds,
                       double now) {
  Stream& stream = streams_[transfer];
  stream.messages.push_back({microbatch, seconds});
  if (stream.messages.size() > stream.next + 1) return;  // its turn comes
  for (const PortIndex port : ports_.Of(transfer)) port_[port].active.push_back(transfer);
  BeginNext(transfer, now);
}

Arrival SharedPorts::TakeNext() {
  const double now = ends_.next();
  const TransferIndex transfer = ends_.first();
  Stream& stream = streams_[transfer];
  const Arrival arrival = {
      transfer, stream.messages[stream.next++].microbatch, {stream.begin, now}};
  if (stream.next < stream.messages.size()) {
    BeginNext(transfer, now);
  } else {
    ends_.Set(transfer, EventTimes::kNever);
    const bool was_alone = IsAlone(transfer);
    for (const PortIndex port : ports_.Of(transfer)) std::erase(port_[port].active, transfer);
    if (!was_alone) Settle(transfer, now);
  }
  return arrival;
}

void SharedPorts::BeginNext(TransferIndex transfer, double now) {
  Stream& stream = streams_[transfer];
  stream.begin = stream.looked_at = now;
  stream.left = stream.messages[stream.next].seconds;
  if (!IsAlone(transfer)) return Settle(transfer, now);
  stream.speed = 1;
  ExpectEnd(transfer, now);
}

// As transfers nearly always are.
bool SharedPorts::IsAlone(TransferIndex transfer) const {
  return std::ranges::all_of(ports_.Of(transfer),
                             [this](PortIndex port) { return port_[port].active.size() == 1; });
}

// Gives new speeds to all that a transfer which begins or ends can reach, and expects their ends.
void SharedPorts::Settle(TransferIndex changed, double now) {
  Reach(changed);
  for (const TransferIndex transfer : reached_) {
    Stream& stream = streams_[transfer];
    stream.left = std::max(0.0, stream.left - stream.speed * (now - stream.looked_at));
    stream.looked_at = now;
  }
  Share();
  for (const TransferIndex transfer : reached_) ExpectEnd(transfer, now);
}

void SharedPorts::ExpectEnd(TransferIndex transfer, double now) {
  const Stream& stream = streams_[transfer];
  ends_.Set(transfer, now + stream.left / stream.speed);
}

// Ports and active transfers that are connected with those of one.
void SharedPorts::Reach(TransferIndex changed) {
  reached_.clear();
  reached_ports_.clear();
  const auto reach_ports = [this](TransferIndex transfer) {
    for (const PortIndex port : ports_.Of(transfer)) {
      if (port_[port].is_reached) continue;
      port_[port].is_reached = true;
      reached_ports_.push_back(port);
    }
  };
  reach_ports(changed);
  for (size_t i = 0; i < reached_ports_.size(); ++i) {
    for (const TransferIndex transfer : port_[reached_ports_[i]].active) {
      if (streams_[transfer].is_reached) continue;
      streams_[transfer].is_reached = true;
      reached_.push_back(transfer);
      reach_ports(transfer);
    }
  }
}

// Progressive filling: the port that has least for each of its transfers gives them all that it
// has.
void SharedPorts::Share() {
  for (const PortIndex number : reached_ports_) {
    Port& port = port_[number];
    port.is_reached = false;
    port.left = 1;
    port.sharing = static_cast<int32_t>(port.active.size());
  }
  for (;;) {
    std::erase_if(reached_ports_, [this](PortIndex port) { return port_[port].sharing == 0; });
    if (reached_ports_.empty()) return;
    const Port& port = port_[*std::ranges::min_element(reached_ports_, {}, [this](PortIndex other) {
      return port_[other].left / port_[other].sharing;
    })];
    const double speed = port.left / port.sharing;
    for (const TransferIndex transfer : port.active) {
      if (streams_[transfer].is_reached) Give(transfer, speed);
    }
  }
}

void SharedPorts::Give(TransferIndex transfer, double speed) {
  streams_[transfer].is_reached = false;
  streams_[transfer].speed = speed;
  for (const PortIndex number : ports_.Of(transfer)) {
    // Sums of speeds may exceed what is left by a rounding error.
    port_[number].left = std::max(0.0, port_[number].left - speed);
    --port_[number].sharing;
  }
}

}  // namespace crossmesh
