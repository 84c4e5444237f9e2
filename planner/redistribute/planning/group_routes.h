#pragma once

#include "common/base/cancel_check.h"
#include "planner/redistribute/planning/course_draft.h"
#include "planner/reshard/plan_reshard.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// By what the search prices steps.
enum class RouteMedia : uint8_t {
  kMessages,     // from device to device
  kCollectives,  // or collectives of NCCL, where the request's steps may be such
};

// How the tensors of a request go from end to end, by groups. Immutable.
class GroupRoutes {
 public:
  // As PlanRedistribution, of what searches and methods say. Cost: a search for each group.
  static absl::StatusOr<GroupRoutes> Find(const ReshardRequest& request, RouteMedia media,
                                          CancelCheck cancelled);

  std::vector<const GroupRoute*> all() const;
  // Whether each takes one step.
  bool are_single_steps() const;
  // Whether the steps are those of other routes of the same request.
  bool IsSameAs(const GroupRoutes& other) const;

  // E.g. "24348 tensors in 1 step, 12597 tensors in 2 steps".
  std::string StepCounts() const;
  // E.g. "36945 tensors in 1 step": as though all moved at once.
  std::string InOneStep() const;

 private:
  explicit GroupRoutes(std::map<int32_t, GroupRoute> routes) : routes_(std::move(routes)) {}

  std::map<int32_t, GroupRoute> routes_;  // by group
};

}  // namespace crossmesh
