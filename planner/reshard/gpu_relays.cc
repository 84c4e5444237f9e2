#include "planner/reshard/gpu_relays.h"

#include "common/base/status_macros.h"
#include "planner/reshard/gpu_routes.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

GpuRelays CutIntoSteps(const GpuRelaysProblem& problem, Routes routes) {
  GpuRelays relays{.routes = std::move(routes)};
  AssignPlacesAndPeriods(problem.tensors, relays.routes);
  relays.sizes =
      ChooseStepSizes(problem.network, relays.routes, problem.copied, problem.chunk_bytes);
  relays.steps = PredictSteps(problem.network, relays.routes, problem.copied, relays.sizes);
  return relays;
}

absl::StatusOr<GpuRelays> RelayBetweenGpus(const GpuRelaysProblem& problem) {
  const Demands& demands = problem.groups.demands;
  ASSIGN_OR_RETURN(HostRoutes pieces, RouteBetweenGpus(demands, problem.network));
  ASSIGN_OR_RETURN(Routes together,
                   RelaysBetweenGpus(problem.tensors, problem.slicing, problem.groups, pieces));
  GpuRelays best = CutIntoSteps(problem, std::move(together));
  RETURN_IF_ERROR(CheckWanted(problem.cancelled));
  pieces.due = TakeTurns(demands, pieces);
  ASSIGN_OR_RETURN(Routes in_turns,
                   RelaysBetweenGpus(problem.tensors, problem.slicing, problem.groups, pieces));
  GpuRelays other = CutIntoSteps(problem, std::move(in_turns));
  const bool takes_turns = other.steps.seconds < best.steps.seconds;
  if (takes_turns) best = std::move(other);
  best.routes.search =
      absl::StrCat(demands.demands.size(), " groups, ", pieces.pieces.size(), " pieces, ",
                   takes_turns ? "one after the other" : "side by side");
  return best;
}

}  // namespace crossmesh
