#include "planner/network/delivery_mix.h"

#include "planner/network/mix_basis.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

#include <absl/numeric/int128.h>

namespace crossmesh {
namespace {

constexpr int32_t kPortsMax = 1024;
// Steps of the arithmetic: about a second.
constexpr int64_t kWorkMax = 1'000'000'000;
constexpr double kTolerance = 1e-8;
// So near to the bound that was known, nothing is looked for any more.
constexpr double kNear = 1e-4;
// Makes that delivery the cheapest of equals that takes least time of all ports together.
constexpr double kLeastPrice = 1e-7;
// A common multiple of 1 to 22: prices that are simple fractions of one another are so exactly.
constexpr double kPriceUnits = 232'792'560;

PortPrices NoPrices(const HostNetwork& network) {
  const std::vector<double> hosts(network.hosts.size()), racks(network.racks.size());
  return {.host_out = hosts, .host_in = hosts, .rack_up = racks, .rack_down = racks};
}

// The ports that can limit something, in one row. What every plan takes in is the same, so that of
// the ports into hosts only the fullest one counts.
class LimitingPorts {
 public:
  LimitingPorts(const Demands& demands, const HostNetwork& network) : network_(network) {
    const std::vector<int64_t> bytes = BytesIn(demands, network.hosts.size());
    for (size_t host = 1; host < bytes.size(); ++host) {
      if (Fraction(bytes[host], network.host_rates.in[host]) >
          Fraction(bytes[fullest_in_], network.host_rates.in[fullest_in_])) {
        fullest_in_ = static_cast<int32_t>(host);
      }
    }
    // Number 0, on which ForEach relies.
    rates_.push_back(network.host_rates.in[fullest_in_]);
    AddAll(network.host_rates.out, out_);
    AddAll(network.rack_rates.out, up_);
    AddAll(network.rack_rates.in, down_);
  }

  int32_t size() const { return static_cast<int32_t>(rates_.size()); }
  int64_t rate(int32_t port) const { return rates_[port]; }

  // Calls `pass` with each port that the hop passes.
  template <typename Pass>
  void ForEach(const HostHop& hop, Pass pass) const {
    pass(out_[hop.from]);
    if (hop.to == fullest_in_) pass(0);
    if (!network_.CrossesRacks(hop.from, hop.to)) return;
    const int32_t up = up_[network_.rack_of_host[hop.from]];
    const int32_t down = down_[network_.rack_of_host[hop.to]];
    if (up != kNone) pass(up);
    if (down != kNone) pass(down);
  }

  PortPrices PricesOf(std::span<const double> by_port) const {
    PortPrices prices = NoPrices(network_);
    prices.host_in[fullest_in_] = by_port[0];
    const auto set = [&](std::span<const int32_t> ports, std::vector<double>& of_kind) {
      for (size_t place = 0; place < ports.size(); ++place) {
        if (ports[place] != kNone) of_kind[place] = by_port[ports[place]];
      }
    };
    set(out_, prices.host_out);
    set(up_, prices.rack_up);
    set(down_, prices.rack_down);
    return prices;
  }

 private:
  static constexpr int32_t kNone = -1;

  void AddAll(std::span<const int64_t> rates, std::vector<int32_t>& ports) {
    for (const int64_t rate : rates) {
      ports.push_back(rate == PortRates::kUnlimited ? kNone : size());
      if (rate != PortRates::kUnlimited) rates_.push_back(rate);
    }
  }

  const HostNetwork& network_;
  int32_t fullest_in_ = 0;  // a host; its port is number 0
  std::vector<int64_t> rates_;
  std::vector<int32_t> out_;  // by host
  std::vector<int32_t> up_;   // by rack, as the next
  std::vector<int32_t> down_;
};

// A demand that leaves a choice.
struct Group {
  size_t demand = 0;
  int64_t bytes = 0;
  DeliverySearch search;
};

// The deliveries found so far, and the shares of their groups' bytes that they have. Loads are
// times in units of the bound that was known.
class MixSearch {
 public:
  MixSearch(const LimitingPorts& ports, std::vector<Group> groups,
            const std::vector<double>& fixed_loads, double unit_seconds)
      : ports_(ports),
        groups_(std::move(groups)),
        unit_seconds_(unit_seconds),
        step_work_(int64_t{ports.size()} * ports.size() + std::ssize(groups_)),
        basis_(fixed_loads, FirstColumns(fixed_loads)) {}

  // Adds deliveries until none helps, or no mix can be better.
  void Improve() {
    int64_t work = kWorkMax;
    while (work > 0 && basis_.time() > 1 + kNear) {
      while (work > 0 && basis_.Relieve()) work -= step_work_;
      // No delivery is cheaper than what its group pays: the mix is as good as any.
      if (!AddDeliveries(work)) return;
    }
  }

  double time() const { return basis_.time(); }

  // What a byte pays at each port, in units of kPriceUnits to the dearest.
  PortPrices WholePrices() const {
    std::vector<double> prices;
    for (int32_t port = 0; port < ports_.size(); ++port) {
      prices.push_back(std::max(0.0, basis_.Price(port)) / static_cast<double>(ports_.rate(port)));
    }
    // Whole prices keep the proof exact: rounding changes how tight the bound is, never whether it
    // holds.
    const double dearest = *std::ranges::max_element(prices);
    for (double& price : prices) price = std::round(price / dearest * kPriceUnits);
    return ports_.PricesOf(prices);
  }

  std::vector<std::vector<DeliveryMix::Part>> Parts(size_t demands) const {
    std::vector<std::vector<DeliveryMix::Part>> parts(demands);
    for (const auto& [delivery, share] : basis_.Shares()) {
      const auto& [group, hops] = deliveries_[delivery];
      parts[groups_[group].demand].push_back({.share = share, .hops = hops});
    }
    for (std::vector<DeliveryMix::Part>& of_demand : parts) {
      double sum = 0;
      for (const DeliveryMix::Part& part : of_demand) sum += part.share;
      // The disturbance of the basis and rounding leave sums slightly off 1.
      for (DeliveryMix::Part& part : of_demand) part.share /= sum;
    }
    return parts;
  }

 private:
  struct Delivery {
    size_t group = 0;
    std::vector<HostHop> hops;
  };

  double LoadOf(int64_t bytes, int32_t port) const {
    return static_cast<double>(bytes) / (static_cast<double>(ports_.rate(port)) * unit_seconds_);
  }

  MixBasis::Column ColumnOf(const Delivery& delivery) const {
    std::vector<int32_t> copies(ports_.size());
    for (const HostHop& hop : delivery.hops) {
      ports_.ForEach(hop, [&copies](int32_t port) { ++copies[port]; });
    }
    MixBasis::Column column{.group = static_cast<int32_t>(delivery.group)};
    for (int32_t port = 0; port < ports_.size(); ++port) {
      if (copies[port] == 0) continue;
      const double load = LoadOf(groups_[delivery.group].bytes, port);
      column.loads.emplace_back(port, load * copies[port]);
    }
    return column;
  }

  // For each group the cheapest delivery when the fullest ports, by those before it, are the
  // dearest.
  std::vector<MixBasis::Column> FirstColumns(std::span<const double> fixed_loads) {
    std::vector<double> loads(fixed_loads.begin(), fixed_loads.end());
    std::vector<MixBasis::Column> columns;
    for (size_t group = 0; group < groups_.size(); ++group) {
      Delivery delivery{.group = group};
      const PortPrices prices =
          // Squares make full ports much dearer than half full ones, which spreads the first
          // deliveries.
          PricesPerByte([&loads](int32_t port) { return loads[port] * loads[port]; });
      groups_[group].search.Cheapest(prices, delivery.hops);
      columns.push_back(ColumnOf(delivery));
      deliveries_.push_back(std::move(delivery));
      for (const auto& [port, load] : columns.back().loads) loads[port] += load;
    }
    return columns;
  }

  // One for each group whose cheapest delivery helps. Prices may have changed since it was found.
  bool AddDeliveries(int64_t& work) {
    const PortPrices prices = PricesPerByte([this](int32_t port) { return basis_.Price(port); });
    bool any = false;
    for (size_t group = 0; group < groups_.size() && work > 0; ++group) {
      Delivery delivery{.group = group};
      groups_[group].search.Cheapest(prices, delivery.hops);
      MixBasis::Column column = ColumnOf(delivery);
      work -= ports_.size() + static_cast<int64_t>(delivery.hops.size());
      if (basis_.PriceOf(column) > basis_.PriceOfGroup(column.group) - kTolerance) continue;
      work -= step_work_;
      if (!basis_.Add(std::move(column))) continue;
      deliveries_.push_back(std::move(delivery));
      any = true;
    }
    return any;
  }

  template <typename PriceOf>
  PortPrices PricesPerByte(PriceOf price_of) const {
    std::vector<double> prices;
    for (int32_t port = 0; port < ports_.size(); ++port) {
      const double price = std::max(0.0, price_of(port)) + kLeastPrice;
      prices.push_back(price / static_cast<double>(ports_.rate(port)));
    }
    return ports_.PricesOf(prices);
  }

  const LimitingPorts& ports_;
  const std::vector<Group> groups_;
  const double unit_seconds_;
  const int64_t step_work_;
  std::vector<Delivery> deliveries_;  // by column of the basis
  MixBasis basis_;
};

bool LeavesChoice(const Demands& demands, const Demand& demand) {
  return demands.holders(demand).size() > 1 || demands.receivers(demand).size() > 1;
}

int64_t PlacesWithChoice(const Demands& demands) {
  int64_t places = 0;
  for (const Demand& demand : demands.demands) {
    if (!LeavesChoice(demands, demand)) continue;
    places += std::ssize(demands.holders(demand)) + std::ssize(demands.receivers(demand));
  }
  return places;
}

// What all bytes pay at least, divided by what the ports could take in a second.
Fraction ProvenSeconds(const Demands& demands, const HostNetwork& network,
                       const PortPrices& prices) {
  absl::int128 paid = 0, taken = 0;
  std::vector<HostHop> hops;
  for (const Demand& demand : demands.demands) {
    const double price = DeliverySearch(demands, demand, network).Cheapest(prices, hops);
    paid += absl::int128(demand.bytes) * static_cast<int64_t>(price);
  }
  const auto add = [&taken](std::span<const double> of_kind, std::span<const int64_t> rates) {
    for (size_t place = 0; place < rates.size(); ++place) {
      taken += absl::int128(static_cast<int64_t>(of_kind[place])) * rates[place];
    }
  };
  add(prices.host_out, network.host_rates.out);
  add(prices.host_in, network.host_rates.in);
  add(prices.rack_up, network.rack_rates.out);
  add(prices.rack_down, network.rack_rates.in);
  return Fraction(paid, taken);
}

}  // namespace

DeliveryMix MixDeliveries(const Demands& demands, const HostNetwork& network,
                          const Fraction& known) {
  const LimitingPorts ports(demands, network);
  if (ports.size() > kPortsMax || PlacesWithChoice(demands) > kMixPlacesMax) return {};
  const double unit_seconds = known.ToDouble();
  std::vector<Group> groups;
  std::vector<double> fixed_loads(ports.size());
  for (size_t d = 0; d < demands.demands.size(); ++d) {
    const Demand& demand = demands.demands[d];
    const HostRank from = demands.holders(demand)[0], to = demands.receivers(demand)[0];
    if (LeavesChoice(demands, demand)) {
      // Only demands with a choice get columns; all others are a fixed load, which keeps the
      // programme small.
      groups.push_back({d, demand.bytes, DeliverySearch(demands, demand, network)});
      continue;
    }
    ports.ForEach({.root = from, .from = from, .to = to}, [&](int32_t port) {
      fixed_loads[port] += static_cast<double>(demand.bytes) /
                           (static_cast<double>(ports.rate(port)) * unit_seconds);
    });
  }
  if (groups.empty()) return {};
  MixSearch search(ports, std::move(groups), fixed_loads, unit_seconds);
  search.Improve();
  DeliveryMix mix{.prices = search.WholePrices(),
                  .mixed_seconds = search.time() * unit_seconds,
                  .parts = search.Parts(demands.demands.size())};
  mix.seconds = ProvenSeconds(demands, network, mix.prices);
  return mix;
}

}  // namespace crossmesh
