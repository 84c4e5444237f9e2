#include "planner/network/port_sharing.h"

#include "common/plan/testing/for_each_seed.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

struct TestFlow {
  std::vector<int32_t> ports;
  double weight = 1;
  bool active = false;
};

// All flows grow side by side, in proportion to their weights, each until one of its ports is full.
std::vector<double> PlainShares(const std::vector<double>& rates,
                                const std::vector<TestFlow>& flows) {
  std::vector<double> left = rates;
  std::vector<double> shares(flows.size(), 0);
  std::vector<bool> growing;
  for (const TestFlow& flow : flows) growing.push_back(flow.active);
  while (std::ranges::find(growing, true) != growing.end()) {
    std::vector<double> weight(rates.size(), 0);
    for (size_t f = 0; f < flows.size(); ++f) {
      for (const int32_t port : flows[f].ports) weight[port] += growing[f] ? flows[f].weight : 0;
    }
    double step = -1;
    for (size_t p = 0; p < rates.size(); ++p) {
      if (weight[p] > 0 && (step < 0 || left[p] / weight[p] < step)) step = left[p] / weight[p];
    }
    std::vector<bool> full(rates.size(), false);
    for (size_t p = 0; p < rates.size(); ++p) {
      full[p] = weight[p] > 0 && left[p] / weight[p] <= step * (1 + 1e-12);
      left[p] -= step * weight[p];
    }
    for (size_t f = 0; f < flows.size(); ++f) {
      if (!growing[f]) continue;
      shares[f] += step * flows[f].weight;
      growing[f] = std::ranges::none_of(flows[f].ports, [&](int32_t p) { return full[p]; });
    }
  }
  return shares;
}

TEST(PortSharingTest, SharesAreThoseOfProgressiveFillingAfterEveryChange) {
  ForEachSeed(200, [&](RandomSource& random) {
    std::vector<double> rates(random.Between(1, 8));
    for (double& rate : rates) rate = static_cast<double>(random.Between(1, 5));
    PortSharing sharing(rates);
    std::vector<TestFlow> flows(random.Between(1, 12));
    for (TestFlow& flow : flows) {
      for (int32_t port = 0; port < static_cast<int32_t>(rates.size()); ++port) {
        if (flow.ports.size() < PortSharing::kPortsPerFlowMax && random.OneIn(3)) {
          flow.ports.push_back(port);
        }
      }
      if (flow.ports.empty()) flow.ports.push_back(0);
      flow.weight = static_cast<double>(random.Between(1, 4));
      sharing.AddFlow(flow.ports, flow.weight);
    }
    std::vector<double> known(flows.size(), 0);
    for (int step = 0; step < 20; ++step) {
      for (int64_t changes = random.Between(1, 3); changes > 0; --changes) {
        const int64_t flow = random.Below(static_cast<int64_t>(flows.size()));
        flows[flow].active = !flows[flow].active;
        sharing.SetActive(static_cast<int32_t>(flow), flows[flow].active);
        if (!flows[flow].active) known[flow] = 0;
      }
      sharing.Settle([&](int32_t flow) { known[flow] = sharing.rate(flow); });
      const std::vector<double> expected = PlainShares(rates, flows);
      for (size_t f = 0; f < flows.size(); ++f) {
        EXPECT_NEAR(sharing.rate(static_cast<int32_t>(f)), expected[f], 1e-9) << "flow " << f;
        EXPECT_EQ(known[f], sharing.rate(static_cast<int32_t>(f))) << "flow " << f;
      }
    }
  });
}

TEST(PortSharingTest, WhatAChangeDoesNotReachIsNotSettledAgain) {
  PortSharing sharing({10, 10});
  const std::vector<int32_t> first = {0}, second = {1};
  sharing.AddFlow(first, 1);
  sharing.AddFlow(second, 1);
  sharing.SetActive(0, true);
  sharing.SetActive(1, true);
  sharing.Settle([](int32_t /*flow*/) {});
  const int32_t other = sharing.AddFlow(first, 3);
  sharing.SetActive(other, true);
  std::vector<int32_t> settled;
  sharing.Settle([&](int32_t flow) { settled.push_back(flow); });
  std::ranges::sort(settled);
  EXPECT_EQ(settled, (std::vector<int32_t>{0, other}));
  EXPECT_DOUBLE_EQ(sharing.rate(0), 2.5);
  EXPECT_DOUBLE_EQ(sharing.rate(other), 7.5);
}

}  // namespace
}  // namespace crossmesh
