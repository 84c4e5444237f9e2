#include "controller/service/unary.h"

#include "common/rpc/push_back.h"

#include <algorithm>

#include <absl/time/time.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kPauseMin = absl::Milliseconds(10);
constexpr absl::Duration kPauseMax = absl::Seconds(10);

}  // namespace

absl::Status WithoutTurn(const absl::Status& turn, const PlanningQueue& planners) {
  if (!absl::IsResourceExhausted(turn)) return turn;
  return WithPushBack(turn, std::clamp(planners.last_wait(), kPauseMin, kPauseMax));
}

}  // namespace crossmesh
