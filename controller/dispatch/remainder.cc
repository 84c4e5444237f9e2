#include "controller/dispatch/remainder.h"

#include "common/base/status_macros.h"
#include "common/plan/slicing.h"
#include "common/plan/tensor_table.h"
#include "controller/dispatch/remaining_tensors.h"

#include <utility>

#include <absl/status/status.h>

namespace crossmesh {
namespace {

absl::Status CheckHolders(const Remainder& remainder, int32_t replica) {
  ASSIGN_OR_RETURN(const TensorTable tensors,
                   RemainingTensors(remainder.first->tensors(), {replica}, remainder.lost));
  return Slicing::Create(tensors).status();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const PlannedReshard>> PlanRemainder(const Remainder& remainder,
                                                                    const Clock& clock) {
  const PlannedReshard& first = *remainder.first;
  ASSIGN_OR_RETURN(TensorTable tensors,
                   RemainingTensors(first.tensors(), remainder.replicas, remainder.lost));
  ReshardRequest request = first.request();
  request.failed_links = remainder.failed_links;
  request.tensors = std::make_shared<const TensorTable>(std::move(tensors));
  return PlannedReshard::Create(std::move(request), first.limits(), clock);
}

Hopeless FindHopeless(const Remainder& remainder) {
  Hopeless hopeless;
  for (const int32_t replica : remainder.replicas) {
    absl::Status status = CheckHolders(remainder, replica);
    if (status.ok()) continue;
    hopeless.replicas.insert(replica);
    if (hopeless.status.ok()) hopeless.status = std::move(status);
  }
  return hopeless;
}

}  // namespace crossmesh
