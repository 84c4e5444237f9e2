#include "planner/network/bound.h"

#include "common/base/check.h"

#include <algorithm>
#include <string>

namespace crossmesh {
namespace {

BoundTerm IngressTerm(const Demands& demands, std::span<const int64_t> rates) {
  const std::vector<int64_t> bytes = BytesIn(demands, rates.size());
  BoundTerm term;
  for (int32_t place = 0; place < static_cast<int32_t>(rates.size()); ++place) {
    if (bytes[place] == 0 || rates[place] == PortRates::kUnlimited) continue;
    const Fraction seconds(bytes[place], rates[place]);
    if (seconds > term.seconds) term = {seconds, {place}};
  }
  return term;
}

BoundTerm UplinkTerm(const Demands& demands, std::span<const int64_t> rates, int32_t& flows) {
  UplinkFlow flow(demands, rates, UplinkFlow::Preference::kShallow);
  BoundTerm term{flow.StartSeconds(), flow.StartPlaces()};
  if (flow.AllFixed()) return term;
  // Newton's method on cuts (Dinkelbach): a flow that does not fit has a minimum cut that needs
  // more time, and that time is the next one to try. Each step passes over all cuts that need less,
  // so a few are enough.
  for (++flows; !flow.Run(term.seconds); ++flows) {
    const Fraction next = flow.CutSeconds();
    // A cut that needs no more time would have let the flow through: this is what ends the loop.
    CHECK(next > term.seconds) << next << " after " << term.seconds;
    term = {next, flow.CutPlaces()};
  }
  return term;
}

void AddPrices(const BoundTerm& term, PortPrice::Port port, std::span<const std::string> names,
               Bound& bound) {
  for (const int32_t place : term.places) {
    bound.proof.push_back({.port = port, .name = names[place], .price = 1});
  }
}

void AddPrices(std::span<const double> prices, PortPrice::Port port,
               std::span<const std::string> names, Bound& bound) {
  for (size_t place = 0; place < prices.size(); ++place) {
    if (prices[place] == 0) continue;
    bound.proof.push_back({.port = port, .name = names[place], .price = prices[place]});
  }
}

// In units of the dearest one.
void AddPrices(const PortPrices& prices, const HostNetwork& network, Bound& bound) {
  AddPrices(prices.host_in, PortPrice::Port::kHostIn, network.hosts, bound);
  AddPrices(prices.host_out, PortPrice::Port::kHostOut, network.hosts, bound);
  AddPrices(prices.rack_down, PortPrice::Port::kRackDown, network.racks, bound);
  AddPrices(prices.rack_up, PortPrice::Port::kRackUp, network.racks, bound);
  // A proof by prices holds whatever their unit; people read shares of the dearest more easily.
  const double dearest = std::ranges::max_element(bound.proof, {}, &PortPrice::price)->price;
  for (PortPrice& price : bound.proof) price.price /= dearest;
}

}  // namespace

Fraction ExactBound::terms() const {
  return std::max({ingress.seconds, uplink.seconds, rack_ingress.seconds, rack_uplink.seconds});
}

Fraction ExactBound::seconds() const { return std::max(terms(), mix.seconds); }

ExactBound ComputeBound(const Demands& demands, const HostNetwork& network) {
  ExactBound bound;
  bound.ingress = IngressTerm(demands, network.host_rates.in);
  bound.uplink = UplinkTerm(demands, network.host_rates.out, bound.flows);
  if (network.has_racks()) {
    const Demands racks = RackDemands(demands, network);
    bound.rack_ingress = IngressTerm(racks, network.rack_rates.in);
    bound.rack_uplink = UplinkTerm(racks, network.rack_rates.out, bound.flows);
  }
  return bound;
}

Bound ToBound(const ExactBound& exact, const HostNetwork& network) {
  const Fraction seconds = exact.seconds();
  Bound bound{.seconds = seconds.ToDouble(),
              .ingress_seconds = exact.ingress.seconds.ToDouble(),
              .uplink_seconds = exact.uplink.seconds.ToDouble(),
              .rack_ingress_seconds = exact.rack_ingress.seconds.ToDouble(),
              .rack_uplink_seconds = exact.rack_uplink.seconds.ToDouble()};
  // Nothing crosses the network: there is no port to name.
  if (seconds == Fraction()) return bound;
  if (exact.ingress.seconds == seconds) {
    AddPrices(exact.ingress, PortPrice::Port::kHostIn, network.hosts, bound);
  } else if (exact.uplink.seconds == seconds) {
    AddPrices(exact.uplink, PortPrice::Port::kHostOut, network.hosts, bound);
  } else if (exact.rack_ingress.seconds == seconds) {
    AddPrices(exact.rack_ingress, PortPrice::Port::kRackDown, network.racks, bound);
  } else if (exact.rack_uplink.seconds == seconds) {
    AddPrices(exact.rack_uplink, PortPrice::Port::kRackUp, network.racks, bound);
  } else {
    bound.together_seconds = bound.seconds;
    AddPrices(exact.mix.prices, network, bound);
  }
  return bound;
}

SendShares ComputeSendShares(const Demands& demands, const HostNetwork& network,
                             const Fraction& bound) {
  if (network.has_racks()) {
    UplinkFlow chains(demands, network.host_rates.out, UplinkFlow::Preference::kChains,
                      network.rack_of_host);
    // A receiver that forwards once at most may be too strict for the bound: then any flow must do.
    if (chains.AllFixed() || chains.Run(bound)) return chains.Shares();
  }
  UplinkFlow flow(demands, network.host_rates.out, UplinkFlow::Preference::kShallow);
  CHECK(flow.AllFixed() || flow.Run(bound)) << "no flow within " << bound;
  return flow.Shares();
}

}  // namespace crossmesh
