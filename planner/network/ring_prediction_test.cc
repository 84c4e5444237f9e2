#include "planner/network/ring_prediction.h"

#include "common/base/check.h"
#include "common/plan/testing/tables.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kPortRate = 1'000'000'000;
constexpr int64_t kLinks = 8 * kPortRate;

// Ranks 0 and 1 are GPUs of host a, 2 and 3 of b, 4 and 5 of c, 6 and 7 of d.
struct Wiring {
  bool shares_nics = false;  // each host has one NIC for both
  // Of each of two racks, with two hosts; 0: no racks.
  int64_t uplink = 0;
};

GpuNetwork NetworkOf(const Wiring& wiring) {
  std::vector<Host> hosts;
  for (const std::string name : {"a", "b", "c", "d"}) {
    Host host{.name = name, .nics = {{"n0", kPortRate, kPortRate, 0, 0}}};
    if (!wiring.shares_nics) host.nics.push_back({"n1", kPortRate, kPortRate, 0, 0});
    host.gpus = {{0, "n0", kLinks, kLinks, 100 * kPortRate},
                 {1, wiring.shares_nics ? "n0" : "n1", kLinks, kLinks, 100 * kPortRate}};
    hosts.push_back(std::move(host));
  }
  std::vector<Rack> racks;
  if (wiring.uplink > 0) {
    racks = {{"r0", {"a", "b"}, wiring.uplink, wiring.uplink},
             {"r1", {"c", "d"}, wiring.uplink, wiring.uplink}};
  }
  const auto topology = Topology::Create(std::move(hosts), std::move(racks));
  CHECK_OK(topology);
  const TensorTable tensors = TableOf({TensorOf(
      "[8, 4]: x=8 on a.0-1,b.0-1,c.0-1,d.0-1 [x, -] -> x=8 on a.0-1,b.0-1,c.0-1,d.0-1 [-, -]")});
  std::optional<GpuNetwork> network = GpuNetworkOf(tensors, *topology);
  CHECK(network.has_value());
  return *std::move(network);
}

using Groups = std::vector<std::vector<DeviceRank>>;

// Bytes per second at which a ring passes pieces on: what a byte more in each piece costs.
double RateOf(const Wiring& wiring, const Groups& groups) {
  const GpuNetwork network = NetworkOf(wiring);
  RingCollective ring{.collective = {.kind = StepCollective::kReduceScatter, .groups = groups}};
  const double none = PredictRing(network, ring);
  ring.piece_bytes = int64_t{1} << 30;
  const double seconds = PredictRing(network, ring) - none;
  return static_cast<double>(ring.passes() * ring.piece_bytes) / seconds;
}

void ExpectRate(double expected, const Wiring& wiring, const Groups& groups) {
  EXPECT_NEAR(RateOf(wiring, groups), expected, expected * 1e-6);
}

TEST(RingPrediction, AGroupHasTheNicsOfItsOwnGpus) {
  ExpectRate(kPortRate, {}, {{0, 2}, {1, 3}});
  ExpectRate(2 * kPortRate, {}, {{0, 1, 2, 3}});
  // The slowest host of the slowest group decides.
  ExpectRate(kPortRate, {}, {{0, 1, 2}});
  ExpectRate(kPortRate, {}, {{0, 1, 2, 3}, {4, 6}});
}

TEST(RingPrediction, GroupsThatShareANicHaveEqualPartsOfIt) {
  ExpectRate(kPortRate / 2.0, {.shares_nics = true}, {{0, 2}, {1, 3}});
  ExpectRate(kPortRate, {.shares_nics = true}, {{0, 1, 2, 3}});
}

TEST(RingPrediction, InsideAHostLinksAreTheLimit) {
  ExpectRate(kLinks, {}, {{0, 1}, {2, 3}});
  // NICs of those that leave it, in the same step.
  ExpectRate(kPortRate, {}, {{0, 1}, {2, 4}});
}

TEST(RingPrediction, RingsThatPassARacksUplinkShareIt) {
  const Wiring racks{.uplink = kPortRate / 2};
  ExpectRate(kPortRate / 2.0, racks, {{0, 4}});
  ExpectRate(kPortRate / 4.0, racks, {{0, 4}, {1, 5}});
  ExpectRate(kPortRate / 8.0, racks, {{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  // One that stays in a rack does not pass it.
  ExpectRate(kPortRate / 2.0, racks, {{0, 4}, {1, 2}});
  ExpectRate(kPortRate, racks, {{0, 2}, {1, 3}, {4, 6}, {5, 7}});
}

TEST(RingPrediction, AnAllReducePassesTwiceAndAGatherIsHashed) {
  const GpuNetwork network = NetworkOf({});
  const auto seconds_of = [&](StepCollective kind, int64_t bytes) {
    return PredictRing(
        network, {.collective = {.kind = kind, .groups = {{0, 1, 2, 3}}}, .piece_bytes = bytes});
  };
  constexpr int64_t kBytes = int64_t{1} << 30;
  const auto of_bytes = [&](StepCollective kind) {
    return seconds_of(kind, kBytes) - seconds_of(kind, 0);
  };
  const double scatter = of_bytes(StepCollective::kReduceScatter);
  EXPECT_NEAR(of_bytes(StepCollective::kAllReduce), 2 * scatter, scatter * 1e-6);
  EXPECT_NEAR(of_bytes(StepCollective::kAllGather) - scatter, 4.0 * kBytes / (100.0 * kPortRate),
              scatter * 1e-6);
}

TEST(RingPrediction, EachRingEntersAndLeavesEachOfItsHosts) {
  const GpuNetwork network = NetworkOf({});
  const auto rings = [&](const Groups& groups) {
    return RingsOfHosts(network, {.groups = groups});
  };
  EXPECT_THAT(rings({{0, 2}, {1, 3}}), ElementsAre(2, 2, 0, 0));
  EXPECT_THAT(rings({{0, 1, 2, 3}}), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(rings({{0, 1}, {2, 4}}), ElementsAre(0, 1, 1, 0));
}

}  // namespace
}  // namespace crossmesh
