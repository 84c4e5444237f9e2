#pragma once

#include "common/plan/communicator_splits.h"
#include "common/plan/course.h"
#include "common/plan/plan.h"
#include "common/plan/step_collective.h"
#include "common/plan/tensor_table.h"
#include "planner/reshard/plan_reshard.h"

#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The names that a request may have for the order in which summands are added. Empty: the first, or
// that of a ring of hosts (sum_ring.h).
inline constexpr absl::string_view kFixedReductionOrder = "fixed";  // of their coordinates
inline constexpr absl::string_view kAnyReductionOrder = "any";      // may be one of NCCL's own
// InvalidArgument: none of these.
absl::Status CheckReductionOrder(absl::string_view name);

// Whether steps of the request's plan may be collectives of NCCL at all: of GPUs, which leave the
// request all of their NICs, where it is not to keep to relays, and whose destination is not the
// storage that is read.
bool MayUseCollectives(const ReshardRequest& request);
// The collective that a step may be; none of what is reduced in an order that the request does not
// leave to NCCL.
std::optional<GroupedCollective> CollectiveFor(const ReshardRequest& request,
                                               const TensorTable& step,
                                               const std::optional<Reduction>& reduction);

// Chooses for the steps of a plan, one after the other. Thread-compatible.
class CollectiveChoice {
 public:
  // The request must outlive this.
  explicit CollectiveChoice(const ReshardRequest& request);

  // The step with the word for its collective, and the figures of that, if there is one that is
  // predicted to take no longer than the step's relays, and whose groups do not take more splits of
  // the communicator than a plan may have; else as it is. An all-gather's relays are then one of
  // each device, straight to all others of its group, as ranks compare hashes. What Plan::Create
  // says. Cost: linear in hops.
  absl::StatusOr<Course<Plan>::Step> Choose(Course<Plan>::Step step);

 private:
  bool HasRoomFor(const CommunicatorSplit& split) const;

  const ReshardRequest& request_;
  std::vector<CommunicatorSplit> splits_;  // of the steps so far
};

// What a plan says of its steps: in which order summands are added, where there are any; how many
// steps are collectives of NCCL. Empty: nothing.
std::string ReductionOrderText(const std::vector<Course<Plan>>& courses);
std::string CollectivesText(const std::vector<Course<Plan>>& courses);

}  // namespace crossmesh
