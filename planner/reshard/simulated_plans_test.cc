// Plans run by the simulator: cases with an answer by hand, and laws that hold for every plan.

#include "common/base/check.h"
#include "common/plan/testing/for_each_seed.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/random_topology.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"
#include "planner/network/port_load.h"
#include "planner/network/simulator.h"
#include "planner/reshard/plan_reshard.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::AnyOf;
using testing::DoubleNear;

constexpr int64_t kMebi = int64_t{1} << 20;
constexpr double kRounding = 1e-9;

Host HostWithNics(std::string name, std::vector<std::pair<int64_t, int64_t>> mebi_out_in) {
  Host host{.name = std::move(name)};
  for (const auto& [out, in] : mebi_out_in) {
    host.nics.push_back({absl::StrCat("nic", host.nics.size()), out * kMebi, in * kMebi});
  }
  return host;
}

// Hosts with one NIC each, alike in rates and latencies.
std::vector<Host> EqualHosts(std::initializer_list<const char*> names, int64_t mebi_out_in,
                             int64_t latency_ns) {
  std::vector<Host> hosts;
  for (const char* name : names) {
    hosts.push_back(HostWithNics(name, {{mebi_out_in, mebi_out_in}}));
    hosts.back().nics[0].out_latency_ns = hosts.back().nics[0].in_latency_ns = latency_ns;
  }
  return hosts;
}

struct Planned {
  Plan plan;
  Topology topology;
};

absl::StatusOr<Planned> PlanFor(const TensorText& tensor, std::vector<Host> hosts,
                                std::vector<Rack> racks = {},
                                Strategy strategy = Strategy::kRelay) {
  absl::StatusOr<Topology> topology = Topology::Create(std::move(hosts), std::move(racks));
  if (!topology.ok()) return topology.status();
  ReshardRequest request;
  request.tensors = std::make_shared<const TensorTable>(TableOf({tensor}));
  request.topology = *topology;
  request.strategy = strategy;
  absl::StatusOr<Plan> plan = PlanReshard(request);
  if (!plan.ok()) return plan.status();
  return Planned{*std::move(plan), *std::move(topology)};
}

// 16 MiB from host a to all of the hosts named.
TensorText FromOneTo(const std::string& hosts, int count) {
  return {.shape = "[4194304]",
          .source_mesh = "x=1 on a.0",
          .source = "[-]",
          .destination_mesh = absl::StrCat("y=", count, " on ", hosts),
          .destination = "[-]"};
}

TEST(SimulatedPlansTest, OneHopTakesItsBytesAtTheSlowerOfItsPorts) {
  ASSERT_OK_AND_ASSIGN(
      const Planned planned,
      PlanFor(FromOneTo("b.0", 1), {HostWithNics("a", {{8, 8}}), HostWithNics("b", {{8, 4}})}));
  ASSERT_OK_AND_ASSIGN(const SimulatedTimeline run, Simulate(planned.plan, planned.topology));
  EXPECT_NEAR(run.seconds, 4, kRounding);
}

TEST(SimulatedPlansTest, AChainTakesItsFillOnTop) {
  ASSERT_OK_AND_ASSIGN(const Planned planned,
                       PlanFor(FromOneTo("b.0,c.0,d.0", 3),
                               {HostWithNics("a", {{4, 4}}), HostWithNics("b", {{4, 4}}),
                                HostWithNics("c", {{4, 4}}), HostWithNics("d", {{4, 4}})}));
  ASSERT_EQ(planned.plan.figures().depth, 3);
  ASSERT_OK_AND_ASSIGN(const SimulatedTimeline run,
                       Simulate(planned.plan, planned.topology, {.keep_transfers = true}));
  ASSERT_EQ(planned.plan.periods(), 256);
  EXPECT_NEAR(run.seconds, 4 * (256 + 3 - 1) / 256.0, kRounding);
  EXPECT_EQ(run.seconds, planned.plan.figures().predicted_seconds);
  ASSERT_EQ(run.transfers.size(), 3 * 256);
  // Down the chain and along its hops.
  EXPECT_EQ(run.CriticalChain().size(), 256 + 3 - 1);
}

TEST(SimulatedPlansTest, LatenciesDelayTheArrivalAndNotTheNextChunk) {
  ASSERT_OK_AND_ASSIGN(const Planned planned,
                       PlanFor(FromOneTo("b.0", 1), EqualHosts({"a", "b"}, 4, 250'000'000)));
  ASSERT_OK_AND_ASSIGN(const SimulatedTimeline run,
                       Simulate(planned.plan, planned.topology, {.keep_transfers = true}));
  ASSERT_EQ(run.transfers.size(), 256u);
  EXPECT_NEAR(run.transfers[1].begin_seconds, 4 / 256.0, kRounding);
  EXPECT_NEAR(run.transfers[1].arrival_seconds, 2 * 4 / 256.0 + 0.5, kRounding);
  EXPECT_NEAR(run.seconds, 4 + 0.5, kRounding);
}

TEST(SimulatedPlansTest, AChunkIsForwardedWhenItHasArrived) {
  ASSERT_OK_AND_ASSIGN(
      const Planned planned,
      PlanFor(FromOneTo("b.0,c.0,d.0", 3), EqualHosts({"a", "b", "c", "d"}, 4, 5'000'000)));
  ASSERT_EQ(planned.plan.figures().depth, 3);
  ASSERT_OK_AND_ASSIGN(const SimulatedTimeline run,
                       Simulate(planned.plan, planned.topology, {.keep_transfers = true}));
  EXPECT_NEAR(run.seconds, 4 * (256 + 3 - 1) / 256.0 + 3 * 0.01, kRounding);
  EXPECT_EQ(run.seconds, planned.plan.figures().predicted_seconds);
  const std::vector<int64_t> chain = run.CriticalChain();
  ASSERT_EQ(chain.size(), 256 + 3 - 1);
  int64_t waits = 0;  // for an arrival, not for the chunk before
  for (size_t i = 1; i < chain.size(); ++i) {
    const SimulatedTransfer &before = run.transfers[chain[i - 1]], &next = run.transfers[chain[i]];
    waits += next.begin_seconds - before.end_seconds > 0.005 ? 1 : 0;
  }
  EXPECT_EQ(waits, 2);
}

// b gets half from a near and half from a far host, which are equally fast.
TEST(SimulatedPlansTest, TheLastArrivalEndsTheRunWhateverLeftLast) {
  std::vector<Host> hosts = EqualHosts({"a", "b", "c"}, 4, 0);
  hosts[2].nics[0].out_latency_ns = 1'000'000'000;
  const TensorText tensor = {.shape = "[4194304]",
                             .source_mesh = "x=2 on a.0,c.0",
                             .source = "[x]",
                             .destination_mesh = "y=1 on b.0",
                             .destination = "[-]"};
  ASSERT_OK_AND_ASSIGN(const Planned planned, PlanFor(tensor, std::move(hosts)));
  ASSERT_OK_AND_ASSIGN(const SimulatedTimeline run,
                       Simulate(planned.plan, planned.topology, {.keep_transfers = true}));
  EXPECT_NEAR(run.seconds, 4 + 1, kRounding);
  const SimulatedTransfer& last = run.transfers[run.CriticalChain().back()];
  EXPECT_EQ(last.arrival_seconds, run.seconds);
  EXPECT_EQ(run.ports[last.out_port].name, "c/nic0");
}

TEST(SimulatedPlansTest, AFastSenderServesSlowReceiversSideBySide) {
  std::vector<Host> hosts = {HostWithNics("a", {{16, 16}})};
  for (const char* name : {"b", "c", "d", "e"}) hosts.push_back(HostWithNics(name, {{4, 4}}));
  const TensorText tensor = {.shape = "[4194304]",
                             .source_mesh = "x=1 on a.0",
                             .source = "[-]",
                             .destination_mesh = "y=4 on b.0,c.0,d.0,e.0",
                             .destination = "[y]"};
  ASSERT_OK_AND_ASSIGN(const Planned planned, PlanFor(tensor, std::move(hosts)));
  ASSERT_OK_AND_ASSIGN(const SimulatedTimeline run, Simulate(planned.plan, planned.topology));
  EXPECT_NEAR(run.seconds, 1, kRounding);
}

TEST(SimulatedPlansTest, ChunksAreSpreadOverTheNicsByTheirRates) {
  ASSERT_OK_AND_ASSIGN(const Planned planned,
                       PlanFor(FromOneTo("b.0", 1), {HostWithNics("a", {{6, 6}, {2, 2}}),
                                                     HostWithNics("b", {{4, 4}, {4, 4}})}));
  ASSERT_OK_AND_ASSIGN(const SimulatedTimeline run, Simulate(planned.plan, planned.topology));
  EXPECT_NEAR(run.seconds, 2, 0.25);
  ASSERT_EQ(run.ports[0].name, "a/nic0");
  EXPECT_NEAR(run.port_bytes[0], 12 * kMebi, kMebi);
}

TEST(SimulatedPlansTest, ANarrowUplinkHoldsUpWhatCrossesIt) {
  const std::vector<Rack> racks = {{"left", {"a"}, 2 * kMebi, 2 * kMebi},
                                   {"right", {"b"}, 4 * kMebi, 4 * kMebi}};
  ASSERT_OK_AND_ASSIGN(const Planned planned,
                       PlanFor(FromOneTo("b.0", 1),
                               {HostWithNics("a", {{8, 8}}), HostWithNics("b", {{8, 8}})}, racks));
  ASSERT_OK_AND_ASSIGN(const SimulatedTimeline run, Simulate(planned.plan, planned.topology));
  EXPECT_NEAR(run.seconds, 8, kRounding);
}

TEST(SimulatedPlansTest, TooManyChunksAreRefused) {
  TensorText tensor = FromOneTo("b.0,c.0,d.0", 3);
  tensor.shape = "[1099511627776]";
  tensor.type = DataType::kF64;
  ASSERT_OK_AND_ASSIGN(const Planned planned, PlanFor(tensor, {}));
  EXPECT_THAT(Simulate(planned.plan, planned.topology),
              StatusIs(absl::StatusCode::kResourceExhausted, testing::HasSubstr("16777216")));
}

TEST(SimulatedPlansTest, NoRunIsFasterThanItsPortsAndEveryByteIsCounted) {
  ForEachSeed(200, [&](RandomSource& random, uint64_t seed) {
    ReshardRequest request;
    request.tensors =
        std::make_shared<const TensorTable>(RandomTensorTable(random, {.length_max = 100}));
    request.topology = RandomTopology(random, *request.tensors,
                                      {.bytes_per_second = 1000,
                                       .latency_ns_max = random.OneIn(2) ? 10'000'000 : 0,
                                       .racks = true});
    request.strategy = kAllStrategies[seed % std::size(kAllStrategies)];
    request.chunk_bytes = Plan::kLeafBytes;
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
    for (const PortSharingRule sharing : {PortSharingRule::kEqual, PortSharingRule::kPlanned}) {
      const SimulatorOptions options = {.sharing = sharing, .keep_transfers = true};
      ASSERT_OK_AND_ASSIGN(const SimulatedTimeline run, Simulate(plan, request.topology, options));
      EXPECT_GE(run.seconds, plan.figures().bound.seconds * (1 - kRounding));
      double out_bytes = 0;
      for (size_t port = 0; port < run.ports.size(); ++port) {
        EXPECT_GE(run.seconds * (1 + kRounding),
                  run.port_bytes[port] / run.ports[port].bytes_per_second)
            << run.ports[port].name;
        if (run.ports[port].kind == PortPrice::Port::kHostOut) out_bytes += run.port_bytes[port];
      }
      EXPECT_NEAR(out_bytes, static_cast<double>(plan.figures().network_bytes), 1e-3);
      SimulatedTransfer before;
      for (const int64_t number : run.CriticalChain()) {
        const SimulatedTransfer& transfer = run.transfers[number];
        EXPECT_THAT(transfer.begin_seconds,
                    AnyOf(before.end_seconds, DoubleNear(before.arrival_seconds, kRounding)));
        before = transfer;
      }
      EXPECT_EQ(before.arrival_seconds, run.seconds);
    }
  });
}

// Ports that the plan's bytes share take no longer than the bound, and what comes on top is what
// the depth of the routes costs, whatever the number of classes and whatever the rates.
TEST(SimulatedPlansTest, WithOneNicEachRelaysTakeTheBoundAndTheirFill) {
  int plans = 0;
  for (uint64_t seed = 0; plans < 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    ReshardRequest request;
    request.tensors = std::make_shared<const TensorTable>(RandomTensorTable(
        random, {.slots_max = 16, .hosts_max = 4, .length_max = 4000, .rank_max = 3}));
    request.topology = RandomTopology(random, *request.tensors, {.nics_max = 1});
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
    const PlanFigures& figures = plan.figures();
    // Chunks must be many, and larger than the leaves that they are made of.
    if (plan.periods() < 64 || plan.chunk_bytes() < 4 * Plan::kLeafBytes) continue;
    ASSERT_OK_AND_ASSIGN(const SimulatedTimeline run, Simulate(plan, request.topology));
    const double fill = std::max(0, figures.depth - 1) / static_cast<double>(plan.periods());
    EXPECT_LE(run.seconds, figures.bound.seconds * (1 + fill) * 1.005);
    ++plans;
  }
}

// The NIC of a feeds all four of b, by as many chunks at a time: these are as much smaller.
TEST(SimulatedPlansTest, AHopLastsOneChunkHoweverManyShareANic) {
  constexpr int64_t kRate = 1'000'000'000;
  const auto nics = [](int count) {
    std::vector<Nic> result;
    for (int i = 0; i < count; ++i) result.push_back({absl::StrCat("n", i), kRate, kRate});
    return result;
  };
  ReshardRequest request;
  request.tensors =
      std::make_shared<const TensorTable>(TableOf({{.shape = "[4096, 4096]",
                                                    .source_mesh = "x=1 on a.0",
                                                    .source = "[-, -]",
                                                    .destination_mesh = "y=2 on b.0,c.0",
                                                    .destination = "[-, -]"}}));
  ASSERT_OK_AND_ASSIGN(request.topology,
                       Topology::Create({{"a", nics(1)}, {"b", nics(4)}, {"c", nics(1)}}, {}));
  request.chunk_bytes = 4 * Plan::kLeafBytes;
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
  ASSERT_EQ(plan.figures().depth, 2);
  ASSERT_OK_AND_ASSIGN(const SimulatedTimeline run, Simulate(plan, request.topology));
  const double chunk_seconds = static_cast<double>(request.chunk_bytes) / kRate;
  EXPECT_LE(run.seconds, (plan.figures().bound.seconds + chunk_seconds) * 1.001);
}

}  // namespace
}  // namespace crossmesh
