#include "planner/network/delivery_mix.h"

#include "planner/network/bound.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

HostNetwork NetworkOf(std::vector<int64_t> rates, std::vector<int32_t> rack_of_host,
                      std::vector<int64_t> rack_rates) {
  HostNetwork network;
  for (size_t h = 0; h < rates.size(); ++h) network.hosts.push_back(absl::StrCat("h", h));
  network.host_rates = {.out = rates, .in = rates};
  for (size_t r = 0; r < rack_rates.size(); ++r) network.racks.push_back(absl::StrCat("r", r));
  network.rack_of_host = std::move(rack_of_host);
  network.rack_rates = {.out = rack_rates, .in = rack_rates};
  return network;
}

void AddDemand(Demands& demands, std::vector<int32_t> holders, std::vector<int32_t> receivers,
               int64_t bytes) {
  demands.demands.push_back({demands.sets.Intern(holders), demands.sets.Intern(receivers), bytes});
}

ExactBound BoundOf(const Demands& demands, const HostNetwork& network) {
  ExactBound bound = ComputeBound(demands, network);
  bound.mix = MixDeliveries(demands, network, bound.terms());
  return bound;
}

// The rack's own holder sends at 1; the other one could send at 4, but its uplink has only 1.
TEST(DeliveryMixTest, ASlowHolderAndANarrowUplinkShareTheWork) {
  const HostNetwork network = NetworkOf({1, 4, 4}, {0, 1, 0}, {2, 1});
  Demands demands;
  AddDemand(demands, {0, 1}, {2}, 12);
  const ExactBound bound = BoundOf(demands, network);
  EXPECT_EQ(bound.uplink.seconds, Fraction(12, 5));
  EXPECT_EQ(bound.ingress.seconds, Fraction(3));
  EXPECT_EQ(bound.seconds(), Fraction(6));
  ASSERT_THAT(bound.mix.parts, SizeIs(1));
  ASSERT_THAT(bound.mix.parts[0], SizeIs(2));
  EXPECT_NEAR(bound.mix.parts[0][0].share, 0.5, 1e-6);

  const Bound shown = ToBound(bound, network);
  EXPECT_EQ(shown.together_seconds, 6);
  ASSERT_THAT(shown.proof, SizeIs(2));
  EXPECT_EQ(shown.proof[0].port, PortPrice::Port::kHostOut);
  EXPECT_EQ(shown.proof[0].name, "h0");
  EXPECT_EQ(shown.proof[0].price, 1);
  EXPECT_EQ(shown.proof[1].port, PortPrice::Port::kRackUp);
  EXPECT_EQ(shown.proof[1].name, "r1");
  EXPECT_EQ(shown.proof[1].price, 1);
}

TEST(DeliveryMixTest, OneHolderAndOneReceiverLeaveNoChoice) {
  const HostNetwork network = NetworkOf({1, 1, 1}, {0, 0, 1}, {1, 1});
  Demands demands;
  AddDemand(demands, {0}, {2}, 12);
  AddDemand(demands, {1}, {2}, 12);
  EXPECT_THAT(MixDeliveries(demands, network, Fraction(24)).parts, IsEmpty());
}

// Each demand may have all hosts as holders, so their number alone bounds no memory.
TEST(DeliveryMixTest, NothingIsMixedOfMorePlacesThanTheLimit) {
  constexpr int32_t kHosts = 512;
  std::vector<int32_t> racks(kHosts);
  std::vector<int32_t> holders;
  for (int32_t host = 0; host < kHosts; ++host) {
    racks[host] = host % 2;
    if (host > 0) holders.push_back(host);
  }
  const HostNetwork network = NetworkOf(std::vector<int64_t>(kHosts, 4), racks, {1, 1});
  Demands demands;
  AddDemand(demands, holders, {0}, 1 << 20);
  const Fraction known = ComputeBound(demands, network).terms();
  EXPECT_THAT(MixDeliveries(demands, network, known).parts, SizeIs(1));
  demands.demands.resize(kMixPlacesMax / kHosts, demands.demands[0]);
  const int64_t at_limit = std::ssize(demands.demands) * kHosts;
  EXPECT_EQ(at_limit, kMixPlacesMax);
  demands.demands.push_back(demands.demands[0]);
  EXPECT_THAT(MixDeliveries(demands, network, known).parts, IsEmpty());
}

// What cannot be helped at a port leaves less of it to the others.
TEST(DeliveryMixTest, FixedLoadsCount) {
  const HostNetwork network = NetworkOf({1, 4, 4, 4}, {0, 1, 0, 0}, {9, 1});
  Demands demands;
  AddDemand(demands, {0, 1}, {2}, 12);
  AddDemand(demands, {1}, {3}, 2);
  EXPECT_EQ(BoundOf(demands, network).seconds(), Fraction(7));
}

struct RandomMix {
  Demands demands;
  HostNetwork network;
};

RandomMix RandomRacks(uint64_t seed) {
  std::mt19937_64 random(seed);
  const size_t hosts = 2 + random() % 6, racks = 1 + random() % 4;
  std::vector<int64_t> rates, rack_rates;
  std::vector<int32_t> rack_of_host;
  for (size_t h = 0; h < hosts; ++h) {
    rates.push_back(1 + static_cast<int64_t>(random() % 8));
    rack_of_host.push_back(static_cast<int32_t>(random() % racks));
  }
  for (size_t r = 0; r < racks; ++r) rack_rates.push_back(static_cast<int64_t>(random() % 9));
  RandomMix result{.network = NetworkOf(rates, rack_of_host, rack_rates)};
  for (uint64_t d = 1 + random() % 6; d > 0; --d) {
    std::vector<int32_t> holders, receivers;
    for (size_t h = 0; h < hosts; ++h) {
      const uint64_t role = random() % 3;
      if (role < 2) (role == 0 ? holders : receivers).push_back(static_cast<int32_t>(h));
    }
    if (holders.empty() || receivers.empty()) continue;
    AddDemand(result.demands, holders, receivers, 1 + static_cast<int64_t>(random() % 1000));
  }
  return result;
}

class Loads {
 public:
  explicit Loads(const HostNetwork& network)
      : network_(network),
        loads_{.host_out = std::vector<double>(network.hosts.size()),
               .host_in = std::vector<double>(network.hosts.size()),
               .rack_up = std::vector<double>(network.racks.size()),
               .rack_down = std::vector<double>(network.racks.size())} {}

  void AddDemand(HostRank from, HostRank to, double bytes) {
    loads_.host_out[from] += bytes;
    loads_.host_in[to] += bytes;
    if (!network_.CrossesRacks(from, to)) return;
    loads_.rack_up[network_.rack_of_host[from]] += bytes;
    loads_.rack_down[network_.rack_of_host[to]] += bytes;
  }

  double Seconds() const {
    return std::max({Most(loads_.host_out, network_.host_rates.out),
                     Most(loads_.host_in, network_.host_rates.in),
                     Most(loads_.rack_up, network_.rack_rates.out),
                     Most(loads_.rack_down, network_.rack_rates.in)});
  }

 private:
  static double Most(const std::vector<double>& bytes, const std::vector<int64_t>& rates) {
    double most = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (rates[i] != PortRates::kUnlimited) most = std::max(most, bytes[i] / double(rates[i]));
    }
    return most;
  }

  const HostNetwork& network_;
  PortPrices loads_;
};

TEST(DeliveryMixTest, RandomMixesNeedNoLongerThanTheirBound) {
  int above_terms = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const auto [demands, network] = RandomRacks(seed);
    if (demands.demands.empty()) continue;
    const ExactBound bound = BoundOf(demands, network);
    const DeliveryMix& mix = bound.mix;
    if (mix.parts.empty()) continue;
    Loads loads(network);
    for (size_t d = 0; d < demands.demands.size(); ++d) {
      const Demand& demand = demands.demands[d];
      if (mix.parts[d].empty()) {
        loads.AddDemand(demands.holders(demand)[0], demands.receivers(demand)[0],
                        static_cast<double>(demand.bytes));
      }
      for (const DeliveryMix::Part& part : mix.parts[d]) {
        EXPECT_EQ(part.hops.size(), demands.receivers(demand).size());
        for (const HostHop& hop : part.hops) {
          loads.AddDemand(hop.from, hop.to, part.share * static_cast<double>(demand.bytes));
        }
      }
    }
    EXPECT_NEAR(loads.Seconds(), mix.mixed_seconds, 1e-5 * mix.mixed_seconds);
    EXPECT_NEAR(mix.mixed_seconds / bound.seconds().ToDouble(), 1, 1.1e-4);
    above_terms += bound.seconds() > bound.terms();
  }
  EXPECT_GE(above_terms, 20);
}

TEST(DeliveryMixTest, TooManyPortsAreLeftToTheTerms) {
  constexpr int32_t kHosts = 1200;
  std::vector<int32_t> rack_of_host;
  for (int32_t h = 0; h < kHosts; ++h) rack_of_host.push_back(h / 400);
  const HostNetwork network =
      NetworkOf(std::vector<int64_t>(kHosts, 1), rack_of_host, {50, 50, 50});
  Demands demands;
  for (int32_t h = 0; h + 2 < kHosts; ++h) AddDemand(demands, {h, h + 1}, {h + 2}, 5);
  EXPECT_THAT(MixDeliveries(demands, network, Fraction(5)).parts, IsEmpty());
}

}  // namespace
}  // namespace crossmesh
