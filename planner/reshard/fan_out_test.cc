// Chains that are deep for their chunks, or for the network's latencies, become trees.

#include "planner/reshard/fan_out.h"

#include "common/base/check.h"
#include "common/plan/proof.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"
#include "planner/reshard/plan_reshard.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr double kBytesPerSecond = 12.5e9;
constexpr double kFanOutRounding = 1e-9;

// From one host to so many others, all alike.
struct Broadcast {
  int receivers = 1;
  int64_t bytes = 0;
  int64_t latency_us = 0;  // from host to host
  bool racks = false;
};

double PortSeconds(const Broadcast& broadcast) {
  return static_cast<double>(broadcast.bytes) / kBytesPerSecond;
}

ReshardRequest RequestOf(const Broadcast& broadcast) {
  std::vector<Host> hosts;
  std::vector<Rack> racks;
  std::string receivers;
  for (int h = 0; h <= broadcast.receivers; ++h) {
    const std::string name = absl::StrCat("h", h);
    hosts.push_back({.name = name,
                     .nics = {{.name = "nic",
                               .out_bytes_per_second = 12'500'000'000,
                               .in_bytes_per_second = 12'500'000'000,
                               .out_latency_ns = broadcast.latency_us * 500,
                               .in_latency_ns = broadcast.latency_us * 500}}});
    if (broadcast.racks) {
      racks.push_back({absl::StrCat("r", h), {name}, 12'500'000'000, 12'500'000'000});
    }
    if (h > 0) absl::StrAppend(&receivers, h > 1 ? "," : "", name, ".0");
  }
  absl::StatusOr<Topology> topology = Topology::Create(std::move(hosts), std::move(racks));
  CHECK_OK(topology);
  ReshardRequest request;
  request.tensors = std::make_shared<const TensorTable>(
      TableOf({{.shape = absl::StrCat("[", broadcast.bytes / 4, "]"),
                .source_mesh = "x=1 on h0.0",
                .source = "[-]",
                .destination_mesh = absl::StrCat("y=", broadcast.receivers, " on ", receivers),
                .destination = "[-]"}}));
  request.topology = *std::move(topology);
  return request;
}

PlanFigures FiguresFor(const Broadcast& broadcast) {
  const absl::StatusOr<Plan> plan = PlanReshard(RequestOf(broadcast));
  CHECK_OK(plan);
  CHECK_OK(Prove(*plan));
  return plan->figures();
}

TEST(FanOutTest, ATransferOfOneChunkTakesTwoHops) {
  const Broadcast broadcast = {.receivers = 7, .bytes = 65536, .latency_us = 10};
  const PlanFigures figures = FiguresFor(broadcast);
  EXPECT_EQ(figures.depth, 2);
  EXPECT_TRUE(figures.simulated);
  // The root sends a sixth to each of six hosts, which send it to all others.
  EXPECT_NEAR(figures.predicted_seconds, 2 * (PortSeconds(broadcast) + 10e-6), kFanOutRounding);
  EXPECT_THAT(figures.search, testing::HasSubstr("trees of fan-out 6"));
}

TEST(FanOutTest, ManyHostsAreReachedByTwoTreesWithoutLatencies) {
  const Broadcast broadcast = {.receivers = 63, .bytes = int64_t{1} << 20};
  const PlanFigures figures = FiguresFor(broadcast);
  EXPECT_EQ(figures.depth, 6);
  // 16 leaves are 8 chunks of each tree; a chain would take 16 + 62 of 16.
  EXPECT_NEAR(figures.predicted_seconds, PortSeconds(broadcast) * (8 + 5) / 8, kFanOutRounding);
}

TEST(FanOutTest, PortsCarryWhatTheyCarriedInChains) {
  const PlanFigures figures = FiguresFor({.receivers = 15, .bytes = int64_t{1} << 20});
  EXPECT_LT(figures.depth, 15);
  EXPECT_EQ(figures.busiest_host_bytes, int64_t{1} << 20);
  EXPECT_EQ(figures.network_bytes, figures.least_network_bytes);
  EXPECT_NEAR(figures.excess.rounding_seconds, 0, kFanOutRounding);
}

TEST(FanOutTest, ChainsOfManyChunksStayChains) {
  const PlanFigures figures = FiguresFor({.receivers = 5, .bytes = int64_t{1} << 28});
  EXPECT_EQ(figures.depth, 5);
  EXPECT_THAT(figures.search, testing::Not(testing::HasSubstr("fan-out")));
}

TEST(FanOutTest, ChainsThroughRacksStayChains) {
  EXPECT_EQ(FiguresFor({.receivers = 7, .bytes = 65536, .racks = true}).depth, 7);
}

TEST(FanOutTest, WhatIsTooLargeToBeSimulatedFansOutByTheFormula) {
  const Broadcast broadcast = {.receivers = 255, .bytes = int64_t{1} << 28};
  const PlanFigures figures = FiguresFor(broadcast);
  EXPECT_FALSE(figures.simulated);
  EXPECT_LT(figures.predicted_seconds, PortSeconds(broadcast) * 1.05);
}

// In the model of one port, in which a host sends one chunk in a round and receives one, K chunks
// reach p hosts in K - 1 + ceil(log2(p + 1)) rounds at least, each of them longer by the latency.
double LeastSecondsInRounds(const Broadcast& broadcast) {
  const int to_all = std::bit_width(static_cast<uint32_t>(broadcast.receivers));
  double least = std::numeric_limits<double>::infinity();
  for (int64_t chunks = 1; chunks * Plan::kLeafBytes <= broadcast.bytes; ++chunks) {
    const double round =
        PortSeconds(broadcast) / double(chunks) + 1e-6 * double(broadcast.latency_us);
    least = std::min(least, static_cast<double>(chunks - 1 + to_all) * round);
  }
  return least;
}

TEST(FanOutTest, WhereLatencyRulesTreesAreNoSlowerThanRounds) {
  for (const int receivers : {3, 4, 7, 10, 15, 31, 40, 63, 100}) {
    for (const int64_t bytes : {int64_t{65536}, int64_t{1} << 20, int64_t{1} << 23}) {
      for (const int64_t latency_us : {10, 50}) {
        SCOPED_TRACE(absl::StrCat(bytes, " bytes to ", receivers, ", ", latency_us, " us"));
        const Broadcast broadcast = {receivers, bytes, latency_us};
        EXPECT_LE(FiguresFor(broadcast).predicted_seconds,
                  LeastSecondsInRounds(broadcast) * (1 + kFanOutRounding));
      }
    }
  }
}

}  // namespace
}  // namespace crossmesh
