#include "planner/redistribute/reduce_then_relay.h"

#include "common/base/check.h"

#include <utility>
#include <vector>

namespace crossmesh {

Derivation ReduceThenRelay(std::shared_ptr<const TypeSpace> space, const CollectiveCost& cost,
                           StepStaging staging, DerivationOrigin origin) {
  const StepPrices prices(*space, cost);
  std::vector<RedistributionStep> steps;
  const auto append = [&](StepKind kind, const LocalType& before, const LocalType& after) {
    if (before == after) return;
    absl::StatusOr<RedistributionStep> step = MakeStep(*space, kind, {before, after}, staging);
    CHECK_OK(step);
    prices.Price(*step);
    steps.push_back(*std::move(step));
  };
  LocalType reduced = space->source();
  reduced.partial = space->destination().partial;
  append(StepKind::kAllReduce, space->source(), reduced);
  append(StepKind::kRelay, reduced, space->destination());
  return Derivation(std::move(space), std::move(steps), origin);
}

}  // namespace crossmesh
