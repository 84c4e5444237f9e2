#include "planner/reshard/strategy.h"

#include <string>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

// In the order of Strategy.
constexpr std::array<absl::string_view, 8> kNames = {
    "relay",           "send_recv",      "local_all_gather", "global_all_gather",
    "broadcast_naive", "broadcast_size", "broadcast_greedy", "broadcast_search"};
static_assert(kNames.size() == kAllStrategies.size());

}  // namespace

absl::string_view StrategyName(Strategy strategy) { return kNames[static_cast<size_t>(strategy)]; }

absl::StatusOr<Strategy> ParseStrategy(absl::string_view name) {
  for (const Strategy strategy : kAllStrategies) {
    if (StrategyName(strategy) == name) return strategy;
  }
  const auto append_name = [](std::string* out, Strategy s) {
    absl::StrAppend(out, StrategyName(s));
  };
  return absl::InvalidArgumentError(absl::StrCat("strategy \"", name, "\": expected one of ",
                                                 absl::StrJoin(kAllStrategies, ", ", append_name)));
}

}  // namespace crossmesh
