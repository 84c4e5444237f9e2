// Laws that hold for every request, on random ones. A failure prints the seed of its request.

#include "common/plan/proof.h"
#include "common/plan/testing/for_each_seed.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/random_topology.h"
#include "common/testing/status_matchers.h"
#include "planner/network/port_load.h"
#include "planner/reshard/plan_reshard.h"
#include "planner/reshard/relay_strategy.h"
#include "planner/reshard/testing/problem_fixture.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr uint64_t kSeeds = 300;

Routes RoutesOf(const Plan& plan) {
  Routes routes;
  routes.relays = plan.relays();
  routes.hops = plan.hops();
  return routes;
}

TEST(PlanReshardPropertyTest, EveryStrategyGivesAPlanThatIsProvenAndNotBelowTheBound) {
  ForEachSeed(kSeeds, [&](RandomSource& random, uint64_t seed) {
    ReshardRequest request;
    request.tensors = std::make_shared<const TensorTable>(RandomTensorTable(random));
    request.topology =
        RandomTopology(random, *request.tensors, {.racks = seed % 3 == 0, .undescribed = true});
    request.seed = seed;
    const HostNetwork network = HostNetworkOf(*request.tensors, request.topology);
    for (const Strategy strategy : kAllStrategies) {
      SCOPED_TRACE(strategy);
      request.strategy = strategy;
      ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
      EXPECT_OK(Prove(plan));
      const PortLoad load = ComputePortLoad(*request.tensors, network, RoutesOf(plan));
      const double busiest = FindBusiestPort(load, network).seconds;
      EXPECT_GE(busiest, plan.figures().bound.seconds * (1 - 1e-9));
      EXPECT_GE(plan.figures().predicted_seconds, busiest * (1 - 1e-9));
      EXPECT_GE(plan.figures().network_bytes, plan.figures().least_network_bytes);
      ASSERT_OK_AND_ASSIGN(const Plan again, PlanReshard(request));
      EXPECT_EQ(plan.id(), again.id());
    }
  });
}

// A cut between pieces is moved to an element's end. A host has one piece more than cuts in each
// group, so per cut its load changes by less than two elements.
TEST(PlanReshardPropertyTest, RelaysKeepAllPortsWithinTheBoundButForRounding) {
  constexpr int64_t kElementMax = 8;
  int exact = 0, hosts = 0;
  ForEachSeed(4 * kSeeds, [&](RandomSource& random) {
    const TensorTable tensors = RandomTensorTable(random);
    const Topology topology = RandomTopology(random, tensors, {.undescribed = true});
    const ProblemFixture fixture(tensors, topology);
    ASSERT_OK_AND_ASSIGN(const Routes routes, RouteByRelays(fixture.problem()));
    const PortLoad load = ComputePortLoad(tensors, fixture.network, routes);
    const int64_t groups = static_cast<int64_t>(fixture.groups.demands.demands.size());
    const double seconds = fixture.bound.seconds().ToDouble();
    for (size_t h = 0; h < load.host_out.size(); ++h) {
      const double most = seconds * static_cast<double>(fixture.network.host_rates.out[h]);
      EXPECT_LE(static_cast<double>(load.host_out[h]),
                most + static_cast<double>(2 * kElementMax * groups) + 1e-6)
          << "host " << h;
      ++hosts;
      exact += static_cast<double>(load.host_out[h]) <= most + 1e-6;
    }
  });
  EXPECT_GE(exact, hosts * 9 / 10);
}

// As before, for all four kinds of ports; shares of a mix are exact to a thousandth.
TEST(PlanReshardPropertyTest, WithRacksRelaysKeepAllPortsWithinTheBoundButForRounding) {
  constexpr double kElementMax = 8;
  int mixed = 0;
  ForEachSeed(4 * kSeeds, [&](RandomSource& random) {
    const TensorTable tensors = RandomTensorTable(random);
    const ProblemFixture fixture(tensors, RandomTopology(random, tensors, {.racks = true}));
    const HostNetwork& network = fixture.network;
    if (!network.has_racks()) return;
    ASSERT_OK_AND_ASSIGN(const Routes routes, RouteByRelays(fixture.problem()));
    EXPECT_EQ(routes.planned_seconds, 0);
    const PortLoad load = ComputePortLoad(tensors, network, routes);
    const Demands& demands = fixture.groups.demands;
    const double rounding =
        2 * kElementMax * static_cast<double>(demands.demands.size() + 2 * network.hosts.size());
    const double seconds = fixture.bound.seconds().ToDouble() * 1.001;
    const auto expect_within = [&](const std::vector<int64_t>& bytes,
                                   const std::vector<int64_t>& rates) {
      for (size_t place = 0; place < bytes.size(); ++place) {
        if (rates[place] == PortRates::kUnlimited) continue;
        EXPECT_LE(static_cast<double>(bytes[place]),
                  seconds * static_cast<double>(rates[place]) + rounding)
            << "place " << place;
      }
    };
    expect_within(load.host_out, network.host_rates.out);
    expect_within(load.host_in, network.host_rates.in);
    expect_within(load.rack_up, network.rack_rates.out);
    expect_within(load.rack_down, network.rack_rates.in);
    mixed += fixture.bound.seconds() > fixture.bound.terms();
  });
  EXPECT_GE(mixed, 5);
}

// Rates times `factor`, each NIC cut into `parts` equal ones.
Topology Scaled(const Topology& topology, int64_t factor, int64_t parts) {
  std::vector<Host> hosts = topology.hosts();
  for (Host& host : hosts) {
    std::vector<Nic> nics;
    for (const Nic& nic : host.nics) {
      for (int64_t part = 0; part < parts; ++part) {
        nics.push_back({absl::StrCat(nic.name, "-", part),
                        nic.out_bytes_per_second * factor / parts,
                        nic.in_bytes_per_second * factor / parts});
      }
    }
    host.nics = std::move(nics);
  }
  absl::StatusOr<Topology> result =
      Topology::Create(std::move(hosts), {}, topology.assumed_bytes_per_second() * factor);
  CHECK_OK(result);
  return *std::move(result);
}

TEST(PlanReshardPropertyTest, TwiceTheRatesHalveTheBoundAndSplittingNicsLeavesIt) {
  ForEachSeed(kSeeds, [&](RandomSource& random) {
    const TensorTable tensors = RandomTensorTable(random);
    const Topology topology = RandomTopology(random, tensors, {.undescribed = true});
    const Fraction bound = ProblemFixture(tensors, topology).bound.seconds();
    const Fraction half(bound.numerator(), bound.denominator() * 2);
    EXPECT_EQ(ProblemFixture(tensors, Scaled(topology, 2, 1)).bound.seconds(), half);
    EXPECT_EQ(ProblemFixture(tensors, Scaled(topology, 2, 2)).bound.seconds(), half);
  });
}

TEST(PlanReshardPropertyTest, AnotherNicNeverRaisesTheBound) {
  ForEachSeed(kSeeds, [&](RandomSource& random) {
    const TensorTable tensors = RandomTensorTable(random);
    const Topology topology = RandomTopology(random, tensors, {.undescribed = true});
    std::vector<Host> hosts = topology.hosts();
    if (hosts.empty()) return;
    hosts[random.Below(static_cast<int64_t>(hosts.size()))].nics.push_back({"more", 3, 3});
    ASSERT_OK_AND_ASSIGN(const Topology more,
                         Topology::Create(hosts, {}, topology.assumed_bytes_per_second()));
    EXPECT_LE(ProblemFixture(tensors, more).bound.seconds(),
              ProblemFixture(tensors, topology).bound.seconds());
  });
}

// Swapping source and destination turns every transfer around when nothing is replicated: the terms
// change places when all ports are equal.
TEST(PlanReshardPropertyTest, SwappingSidesWithoutReplicasSwapsTheTerms) {
  int compared = 0;
  ForEachSeed(10 * kSeeds, [&](RandomSource& random) {
    const TensorTable tensors =
        RandomTensorTable(random, {.explicit_tiles = false, .replicas = false});
    const ProblemFixture forth(tensors, Topology());
    const Slicing& slicing = forth.slicing;
    bool replicated = false;
    for (ClassIndex c = 0; c < static_cast<ClassIndex>(slicing.classes().size()); ++c) {
      replicated |= slicing.holders(c).size() > 1 || slicing.receivers(c).size() > 1;
    }
    if (replicated) return;
    TensorTable::Spec spec = tensors.spec();
    std::swap(spec.sources, spec.destinations);
    for (TensorGroup& group : spec.groups) std::swap(group.source, group.destination);
    ASSERT_OK_AND_ASSIGN(const TensorTable swapped, TensorTable::Create(std::move(spec)));
    const ProblemFixture back(swapped, Topology());
    // The uplink term also counts all hosts together, which never exceeds the busiest by itself.
    EXPECT_EQ(forth.bound.ingress.seconds, back.bound.uplink.seconds);
    EXPECT_EQ(forth.bound.uplink.seconds, back.bound.ingress.seconds);
    ++compared;
  });
  EXPECT_GT(compared, 50);
}

}  // namespace
}  // namespace crossmesh
