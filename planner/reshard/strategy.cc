#include "planner/reshard/strategy.h"

#include <string>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {

absl::string_view StrategyName(Strategy strategy) {
  switch (strategy) {
    case Strategy::kRelay:
      return "relay";
    case Strategy::kSendRecv:
      return "send_recv";
    case Strategy::kLocalAllGather:
      return "local_all_gather";
    case Strategy::kGlobalAllGather:
      return "global_all_gather";
    case Strategy::kBroadcastNaive:
      return "broadcast_naive";
    case Strategy::kBroadcastSize:
      return "broadcast_size";
    case Strategy::kBroadcastGreedy:
      return "broadcast_greedy";
    case Strategy::kBroadcastSearch:
      return "broadcast_search";
  }
  return "unknown";
}

absl::StatusOr<Strategy> ParseStrategy(absl::string_view name) {
  for (const Strategy strategy : kAllStrategies) {
    if (StrategyName(strategy) == name) return strategy;
  }
  const auto append_name = [](std::string* out, Strategy s) {
    absl::StrAppend(out, StrategyName(s));
  };
  return absl::InvalidArgumentError(absl::StrCat("strategy '", name, "': expected one of ",
                                                 absl::StrJoin(kAllStrategies, ", ", append_name)));
}

}  // namespace crossmesh
