#include "planner/reshard/strategy.h"

#include <algorithm>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

// In the order of Strategy.
constexpr std::array<absl::string_view, 10> kNames = {"relay",
                                                      "send_recv",
                                                      "local_all_gather",
                                                      "global_all_gather",
                                                      "broadcast_naive",
                                                      "broadcast_size",
                                                      "broadcast_greedy",
                                                      "broadcast_search",
                                                      "m2n",
                                                      "redistribute"};
static_assert(kNames.size() == static_cast<size_t>(Strategy::kRedistribute) + 1);

}  // namespace

absl::string_view StrategyName(Strategy strategy) { return kNames[static_cast<size_t>(strategy)]; }

absl::StatusOr<Strategy> ParseStrategy(absl::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found != kNames.end()) return static_cast<Strategy>(found - kNames.begin());
  return absl::InvalidArgumentError(
      absl::StrCat("strategy \"", name, "\": expected one of ", absl::StrJoin(kNames, ", ")));
}

}  // namespace crossmesh
