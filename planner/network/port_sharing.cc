#include "planner/network/port_sharing.h"

#include "common/base/check.h"

#include <algorithm>

namespace crossmesh {

PortSharing::PortSharing(const std::vector<double>& rates) {
  for (const double rate : rates) {
    CHECK(rate > 0) << rate;
    port_.push_back({.rate = rate});
  }
}

int32_t PortSharing::AddFlow(std::span<const int32_t> ports, double weight) {
  CHECK(!ports.empty() && ports.size() <= kPortsPerFlowMax && weight > 0);
  Flow& flow = flow_.emplace_back();
  std::ranges::copy(ports, flow.ports.begin());
  flow.port_count = static_cast<int32_t>(ports.size());
  flow.weight = weight;
  return static_cast<int32_t>(flow_.size()) - 1;
}

void PortSharing::SetActive(int32_t number, bool active) {
  Flow& flow = flow_[number];
  if (flow.active == active) return;
  flow.active = active;
  flow.rate = 0;
  for (int i = 0; i < flow.port_count; ++i) {
    Port& port = port_[flow.ports[i]];
    if (!port.changed) changed_.push_back(flow.ports[i]);
    port.changed = true;
    if (active) {
      flow.places[i] = static_cast<int32_t>(port.active.size());
      port.active.push_back(number);
      continue;
    }
    // Taken out by putting the last one in its place, which must then know where it stands.
    const int32_t last = port.active.back();
    port.active[flow.places[i]] = last;
    port.active.pop_back();
    for (int k = 0; k < flow_[last].port_count; ++k) {
      if (flow_[last].ports[k] == flow.ports[i]) flow_[last].places[k] = flow.places[i];
    }
  }
}

void PortSharing::Reach(int32_t number) {
  Port& port = port_[number];
  if (port.reached) return;
  port.reached = true;
  ports_.push_back(number);
}

// Ports and active flows that are connected with a port that has changed.
void PortSharing::CollectReach() {
  ports_.clear();
  flows_.clear();
  for (const int32_t number : changed_) {
    port_[number].changed = false;
    Reach(number);
  }
  changed_.clear();
  for (size_t i = 0; i < ports_.size(); ++i) {
    for (const int32_t number : port_[ports_[i]].active) {
      Flow& flow = flow_[number];
      if (flow.reached) continue;
      flow.reached = true;
      flows_.push_back(number);
      for (int k = 0; k < flow.port_count; ++k) Reach(flow.ports[k]);
    }
  }
}

void PortSharing::Give(Flow& flow, double rate) {
  flow.rate = rate;
  flow.reached = false;
  for (int i = 0; i < flow.port_count; ++i) {
    Port& port = port_[flow.ports[i]];
    // Sums of rates may exceed what is left by a rounding error.
    port.left = std::max(0.0, port.left - rate);
    port.weight -= flow.weight;
  }
}

// Progressive filling: the port that has least per unit of weight gives all it has.
void PortSharing::Share() {
  for (const int32_t number : ports_) {
    Port& port = port_[number];
    port.reached = false;
    port.left = port.rate;
    port.weight = 0;
    for (const int32_t flow : port.active) port.weight += flow_[flow].weight;
  }
  std::erase_if(ports_, [this](int32_t port) { return port_[port].active.empty(); });
  while (!ports_.empty()) {
    const auto least = std::ranges::min_element(
        ports_, {}, [this](int32_t port) { return port_[port].left / port_[port].weight; });
    Port& port = port_[*least];
    *least = ports_.back();
    ports_.pop_back();
    const double level = port.left / port.weight;
    for (const int32_t number : port.active) {
      if (flow_[number].reached) Give(flow_[number], level * flow_[number].weight);
    }
    // A port all of whose flows have a rate gives nothing any more.
    std::erase_if(ports_, [this](int32_t other) {
      return std::ranges::none_of(port_[other].active,
                                  [this](int32_t flow) { return flow_[flow].reached; });
    });
  }
}

}  // namespace crossmesh
