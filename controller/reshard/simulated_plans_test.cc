// Plans run by the simulator: cases with an answer by hand, and laws that hold for every plan.

#include "common/base/check.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/random_topology.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"
#include "controller/network/port_load.h"
#include "controller/network/simulator.h"
#include "controller/reshard/plan_reshard.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int64_t kMebi = int64_t{1} << 20;
constexpr double kRounding = 1e-9;

Host HostWithNics(std::string name, std::vector<std::pair<int64_t, int64_t>> mebi_out_in) {
  Host host{.name = std::move(name)};
  for (const auto& [out, in] : mebi_out_in) {
    host.nics.push_back({absl::StrCat("nic", host.nics.size()), out * kMebi, in * kMebi});
  }
  return host;
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
  ASSERT_OK_AND_ASSIGN(const SimulatedRun run, Simulate(planned.plan, planned.topology));
  EXPECT_NEAR(run.seconds, 4, kRounding);
}

TEST(SimulatedPlansTest, AChainTakesItsFillOnTop) {
  ASSERT_OK_AND_ASSIGN(const Planned planned,
                       PlanFor(FromOneTo("b.0,c.0,d.0", 3),
                               {HostWithNics("a", {{4, 4}}), HostWithNics("b", {{4, 4}}),
                                HostWithNics("c", {{4, 4}}), HostWithNics("d", {{4, 4}})}));
  ASSERT_EQ(planned.plan.figures().depth, 3);
  ASSERT_OK_AND_ASSIGN(const SimulatedRun run,
                       Simulate(planned.plan, planned.topology, {.keep_transfers = true}));
  ASSERT_EQ(planned.plan.periods(), 256);
  EXPECT_NEAR(run.seconds, 4 * (256 + 3 - 1) / 256.0, kRounding);
  EXPECT_EQ(run.seconds, planned.plan.figures().predicted_seconds);
  ASSERT_EQ(run.transfers.size(), 3 * 256);
  // Down the chain and along its hops.
  EXPECT_EQ(run.CriticalChain().size(), 256 + 3 - 1);
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
  ASSERT_OK_AND_ASSIGN(const SimulatedRun run, Simulate(planned.plan, planned.topology));
  EXPECT_NEAR(run.seconds, 1, kRounding);
}

TEST(SimulatedPlansTest, ChunksAreSpreadOverTheNicsByTheirRates) {
  ASSERT_OK_AND_ASSIGN(const Planned planned,
                       PlanFor(FromOneTo("b.0", 1), {HostWithNics("a", {{6, 6}, {2, 2}}),
                                                     HostWithNics("b", {{4, 4}, {4, 4}})}));
  ASSERT_OK_AND_ASSIGN(const SimulatedRun run, Simulate(planned.plan, planned.topology));
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
  ASSERT_OK_AND_ASSIGN(const SimulatedRun run, Simulate(planned.plan, planned.topology));
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
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomSource random(seed);
    ReshardRequest request;
    request.tensors =
        std::make_shared<const TensorTable>(RandomTensorTable(random, {.length_max = 100}));
    request.topology =
        RandomTopology(random, *request.tensors, {.bytes_per_second = 1000, .racks = true});
    request.strategy = kAllStrategies[seed % std::size(kAllStrategies)];
    request.chunk_bytes = Plan::kLeafBytes;
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
    for (const PortSharingRule sharing : {PortSharingRule::kEqual, PortSharingRule::kPlanned}) {
      const SimulatorOptions options = {.sharing = sharing, .keep_transfers = true};
      ASSERT_OK_AND_ASSIGN(const SimulatedRun run, Simulate(plan, request.topology, options));
      EXPECT_GE(run.seconds, plan.figures().bound.seconds * (1 - kRounding));
      double out_bytes = 0;
      for (size_t port = 0; port < run.ports.size(); ++port) {
        EXPECT_GE(run.seconds * (1 + kRounding),
                  run.port_bytes[port] / run.ports[port].bytes_per_second)
            << run.ports[port].name;
        if (run.ports[port].kind == PortPrice::Port::kHostOut) out_bytes += run.port_bytes[port];
      }
      EXPECT_NEAR(out_bytes, static_cast<double>(plan.figures().network_bytes), 1e-3);
      double begin = 0;
      for (const int64_t transfer : run.CriticalChain()) {
        EXPECT_EQ(run.transfers[transfer].begin_seconds, begin);
        begin = run.transfers[transfer].end_seconds;
      }
      EXPECT_EQ(begin, run.seconds);
    }
  }
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
    ASSERT_OK_AND_ASSIGN(const SimulatedRun run, Simulate(plan, request.topology));
    const double fill = std::max(0, figures.depth - 1) / static_cast<double>(plan.periods());
    EXPECT_LE(run.seconds, figures.bound.seconds * (1 + fill) * 1.005);
    ++plans;
  }
}

}  // namespace
}  // namespace crossmesh
