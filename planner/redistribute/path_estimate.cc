#include "planner/redistribute/path_estimate.h"

#include "planner/redistribute/exchange_estimate.h"

#include <algorithm>

namespace crossmesh {

PathEstimate::PathEstimate(const SearchSpace& space, const StepPrices& prices,
                           PathObjective objective)
    : space_(space),
      prices_(prices),
      objective_(objective),
      missing_(space),
      displacement_(space),
      latency_(space, prices),
      wanted_elements_(space.LocalElements(space.destination())) {}

const PathRemainder& PathEstimate::Of(const PackedType& type) {
  const auto [found, added] = known_.try_emplace(type);
  if (added) found->second = Estimate(type);
  return found->second;
}

PathRemainder PathEstimate::Estimate(const PackedType& type) {
  const Displacement displaced = displacement_.Of(type);
  PathRemainder remainder{.disorder = displaced.disorder};
  if (objective_ == PathObjective::kPeakLiveBytes || type == space_.destination()) return remainder;
  const LocalSizes sizes{.now = space_.LocalElements(type), .wanted = wanted_elements_};
  int64_t missing = missing_.Elements(type);
  remainder.communicating = missing > 0 ? 1 : 0;
  // A relay takes everything to its place at once, so with relays this may be too much. They are
  // looked at from the first types only, whatever the estimates say.
  if (displaced.sums == 1) {
    const ExchangeEstimate exchange = EstimateExchange(displaced, sizes);
    missing = std::max(missing, exchange.elements);
    remainder.communicating = std::max(remainder.communicating, exchange.communicating);
  }
  remainder.bytes = missing * space_.types().item_bytes();
  remainder.objective =
      objective_ == PathObjective::kBytes
          ? static_cast<double>(remainder.bytes)
          : latency_.Seconds(type, displaced, sizes) + prices_.LeastSeconds(remainder.bytes, 0, 0);
  return remainder;
}

}  // namespace crossmesh
