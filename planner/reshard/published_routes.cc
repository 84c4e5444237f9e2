#include "planner/reshard/published_routes.h"

#include "common/base/status_macros.h"
#include "planner/reshard/published/broadcast.h"
#include "planner/reshard/published/due_times.h"
#include "planner/reshard/published/global_all_gather.h"
#include "planner/reshard/published/local_all_gather.h"
#include "planner/reshard/published/send_recv.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::StatusOr<Routes> RouteInOrder(Strategy strategy, const RoutingProblem& problem) {
  switch (strategy) {
    case Strategy::kRelay:
    case Strategy::kRedistribute:
      break;
    // Of the hashes.
    case Strategy::kM2n:
    case Strategy::kSendRecv:
      return RouteBySendRecv(problem);
    case Strategy::kLocalAllGather:
      return RouteByLocalAllGather(problem);
    case Strategy::kGlobalAllGather:
      return RouteByGlobalAllGather(problem);
    case Strategy::kBroadcastNaive:
      return RouteByBroadcast(problem, BroadcastOrder::kNaive);
    case Strategy::kBroadcastSize:
      return RouteByBroadcast(problem, BroadcastOrder::kSize);
    case Strategy::kBroadcastGreedy:
      return RouteByBroadcast(problem, BroadcastOrder::kGreedy);
    case Strategy::kBroadcastSearch:
      return RouteByBroadcast(problem, BroadcastOrder::kSearch);
  }
  return absl::InternalError(absl::StrCat("strategy number ", static_cast<int>(strategy)));
}

}  // namespace

absl::StatusOr<Routes> RouteAsPublished(Strategy strategy, const RoutingProblem& problem) {
  ASSIGN_OR_RETURN(Routes routes, RouteInOrder(strategy, problem));
  SpreadOverTime(problem.tensors, routes);
  return routes;
}

}  // namespace crossmesh
