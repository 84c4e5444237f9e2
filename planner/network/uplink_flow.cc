#include "planner/network/uplink_flow.h"

#include <algorithm>

namespace crossmesh {

UplinkFlow::UplinkFlow(const Demands& demands, std::span<const int64_t> rates,
                       Preference preference, std::span<const int32_t> receiver_order)
    : demands_(demands),
      rates_(rates),
      preference_(preference),
      receiver_order_(receiver_order),
      fixed_bytes_(rates.size()),
      takes_part_(rates.size()) {
  for (size_t place = 0; place < rates.size(); ++place) graph_.AddNode();
  source_ = graph_.AddNode();
  sink_ = graph_.AddNode();
  // First copies come first: paths are tried in this order.
  const int64_t count = static_cast<int64_t>(demands.demands.size());
  for (int64_t d = 0; d < count; ++d) {
    const Demand& demand = demands.demands[d];
    const std::span<const int32_t> holders = demands.holders(demand);
    // A sole holder must send the first copy whatever the flow: that is load, not choice.
    if (holders.size() > 1) {
      AddAsk(d, /*is_first_copy=*/true);
    } else {
      fixed_bytes_[holders[0]] += demand.bytes;
      takes_part_[holders[0]] = true;
    }
  }
  for (int64_t d = 0; d < count; ++d) {
    if (demands.receivers(demands.demands[d]).size() > 1) AddAsk(d, /*is_first_copy=*/false);
  }
  for (size_t place = 0; place < rates.size(); ++place) {
    supply_edge_.push_back(graph_.AddEdge(static_cast<int32_t>(place), sink_, 0));
  }
}

void UplinkFlow::AddAsk(int64_t demand_index, bool is_first_copy) {
  const Demand& demand = demands_.demands[demand_index];
  const std::span<const int32_t> holders = demands_.holders(demand);
  const std::span<const int32_t> receivers = demands_.receivers(demand);
  const int64_t copies = is_first_copy ? 1 : static_cast<int64_t>(receivers.size()) - 1;
  Ask ask{.demand = demand_index,
          .bytes = absl::int128(demand.bytes) * copies,
          .node = graph_.AddNode()};
  ask.ask_edge = graph_.AddEdge(source_, ask.node, 0);
  const auto add_edges = [&](std::span<const int32_t> places) {
    int64_t edge = 0;
    for (const int32_t place : places) {
      takes_part_[place] = true;
      edge = graph_.AddEdge(ask.node, place, MaxFlow::kUnlimited);
    }
    return edge - static_cast<int64_t>(places.size()) + 1;
  };
  if (is_first_copy) {
    ask.holder_edge = add_edges(holders);
  } else if (preference_ == Preference::kShallow) {
    ask.holder_edge = add_edges(holders);
    ask.receiver_edge = add_edges(InOrder(receivers));
  } else {
    ask.receiver_edge = add_edges(InOrder(receivers));
    ask.holder_edge = add_edges(holders);
  }
  asks_.push_back(ask);
}

std::vector<int32_t> UplinkFlow::InOrder(std::span<const int32_t> receivers) const {
  std::vector<int32_t> result(receivers.begin(), receivers.end());
  if (!receiver_order_.empty()) {
    std::ranges::stable_sort(result, {}, [this](int32_t p) { return receiver_order_[p]; });
  }
  return result;
}

Fraction UplinkFlow::NeedOf(int32_t place) const {
  if (rates_[place] == PortRates::kUnlimited) return Fraction();
  return Fraction(fixed_bytes_[place], rates_[place]);
}

Fraction UplinkFlow::NeedOfAll() const {
  absl::int128 bytes = 0, rate = 0;
  for (size_t place = 0; place < rates_.size(); ++place) {
    if (!takes_part_[place]) continue;
    if (rates_[place] == PortRates::kUnlimited) return Fraction();
    bytes += fixed_bytes_[place];
    rate += rates_[place];
  }
  for (const Ask& ask : asks_) bytes += ask.bytes;
  return rate == 0 ? Fraction() : Fraction(bytes, rate);
}

Fraction UplinkFlow::StartSeconds() const {
  Fraction seconds = NeedOfAll();
  for (size_t place = 0; place < rates_.size(); ++place) {
    seconds = std::max(seconds, NeedOf(static_cast<int32_t>(place)));
  }
  return seconds;
}

std::vector<int32_t> UplinkFlow::StartPlaces() const {
  const Fraction seconds = StartSeconds();
  std::vector<int32_t> all;
  for (int32_t place = 0; place < static_cast<int32_t>(rates_.size()); ++place) {
    if (NeedOf(place) == seconds) return {place};
    if (takes_part_[place]) all.push_back(place);
  }
  return all;
}

bool UplinkFlow::Run(const Fraction& seconds) {
  // In units of 1 / denominator all capacities are whole numbers, so the flow is exact.
  unit_ = seconds.denominator();
  for (size_t place = 0; place < rates_.size(); ++place) {
    graph_.SetCapacity(supply_edge_[place],
                       rates_[place] == PortRates::kUnlimited
                           ? MaxFlow::kUnlimited
                           : seconds.numerator() * rates_[place] - unit_ * fixed_bytes_[place]);
  }
  absl::int128 asked = 0;
  for (const Ask& ask : asks_) {
    graph_.SetCapacity(ask.ask_edge, ask.bytes * unit_);
    asked += ask.bytes * unit_;
    // A chain passes each receiver once, so none forwards more than one copy.
    if (preference_ != Preference::kChains || ask.receiver_edge < 0) continue;
    const Demand& demand = demands_.demands[ask.demand];
    for (size_t i = 0; i < demands_.receivers(demand).size(); ++i) {
      graph_.SetCapacity(ask.receiver_edge + static_cast<int64_t>(i), demand.bytes * unit_);
    }
  }
  return graph_.Run(source_, sink_) == asked;
}

std::vector<int32_t> UplinkFlow::CutPlaces() const {
  std::vector<int32_t> places;
  for (int32_t place = 0; place < static_cast<int32_t>(rates_.size()); ++place) {
    if (graph_.OnSourceSide(place)) places.push_back(place);
  }
  return places;
}

// All places of an ask on the source's side are there as well: its edges to them are unlimited.
Fraction UplinkFlow::CutSeconds() const {
  absl::int128 bytes = 0, rate = 0;
  for (const int32_t place : CutPlaces()) {
    bytes += fixed_bytes_[place];
    rate += rates_[place];
  }
  for (const Ask& ask : asks_) {
    if (graph_.OnSourceSide(ask.node)) bytes += ask.bytes;
  }
  return Fraction(bytes, rate);
}

SendShares UplinkFlow::Shares() const {
  SendShares result{.unit = unit_};
  for (const Demand& demand : demands_.demands) {
    const std::span<const int32_t> holders = demands_.holders(demand);
    const std::span<const int32_t> receivers = demands_.receivers(demand);
    if (holders.size() == 1 && receivers.size() == 1) {
      result.first.push_back(SendShares::kSole);
      continue;
    }
    result.first.push_back(static_cast<int64_t>(result.amounts.size()));
    result.amounts.resize(result.amounts.size() + holders.size() + receivers.size());
    if (holders.size() == 1) result.amounts[result.first.back()] = demand.bytes * unit_;
  }
  for (const Ask& ask : asks_) {
    const std::span<const int32_t> holders = demands_.holders(demands_.demands[ask.demand]);
    const std::span<const int32_t> receivers = demands_.receivers(demands_.demands[ask.demand]);
    absl::int128* amount = &result.amounts[result.first[ask.demand]];
    for (size_t i = 0; i < holders.size(); ++i) {
      amount[i] += graph_.flow(ask.holder_edge + static_cast<int64_t>(i));
    }
    if (ask.receiver_edge < 0) continue;
    const std::vector<int32_t> in_order = InOrder(receivers);
    for (size_t i = 0; i < in_order.size(); ++i) {
      const size_t index = std::ranges::lower_bound(receivers, in_order[i]) - receivers.begin();
      amount[holders.size() + index] = graph_.flow(ask.receiver_edge + static_cast<int64_t>(i));
    }
  }
  return result;
}

}  // namespace crossmesh
