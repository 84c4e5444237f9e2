#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace crossmesh {

// Shares the rates of ports among flows by weighted max-min fairness: no flow can have more unless
// one with less per unit of weight has less. Settles again only what a change can reach, so that
// flows that share no port cost nothing to each other. Thread-compatible.
class PortSharing {
 public:
  // A flow passes an out port, an in port, and those of two racks at most.
  static constexpr int kPortsPerFlowMax = 4;

  // In bytes per second, positive, by port.
  explicit PortSharing(const std::vector<double>& rates);

  // Returns the flow's number: 0, 1, ... in the order of calls. It is idle at first. `ports` has 1
  // to kPortsPerFlowMax different ones; the weight is positive.
  int32_t AddFlow(std::span<const int32_t> ports, double weight);
  void SetActive(int32_t flow, bool active);

  // Settles all rates after any number of changes, and calls `on_change(flow)` for every active
  // flow whose rate may be another one. Cost: ports times flows of what the changes can reach.
  template <typename OnChange>
  void Settle(OnChange on_change) {
    CollectReach();
    Share();
    for (const int32_t flow : flows_) on_change(flow);
  }
  // As settled last; 0 for an idle flow.
  double rate(int32_t flow) const { return flow_[flow].rate; }

 private:
  struct Flow {
    std::array<int32_t, kPortsPerFlowMax> ports{};
    std::array<int32_t, kPortsPerFlowMax> places{};  // in the ports' lists of active flows
    int32_t port_count = 0;
    double weight = 0;
    double rate = 0;
    bool active = false;
    bool reached = false;
  };
  struct Port {
    double rate = 0;
    std::vector<int32_t> active;
    double left = 0;    // while settling: not given away
    double weight = 0;  // of flows without a rate
    bool changed = false;
    bool reached = false;
  };

  void CollectReach();
  void Reach(int32_t port);
  void Share();
  void Give(Flow& flow, double rate);

  std::vector<Port> port_;
  std::vector<Flow> flow_;
  std::vector<int32_t> changed_;  // ports
  std::vector<int32_t> ports_;    // that the changes reach
  std::vector<int32_t> flows_;    // likewise
};

}  // namespace crossmesh
