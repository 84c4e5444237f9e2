#include "worker/gpu/executor/collective_calls.h"

#include "common/base/status_macros.h"
#include "common/mesh/data_type.h"
#include "common/plan/course_tables.h"
#include "worker/gpu/executor/tile_check.h"

#include <cstdint>
#include <iterator>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

CollectiveKind KindOf(StepCollective collective) {
  switch (collective) {
    case StepCollective::kAllGather:
      return CollectiveKind::kAllGather;
    case StepCollective::kReduceScatter:
      return CollectiveKind::kReduceScatter;
    case StepCollective::kAllReduce:
      return CollectiveKind::kAllReduce;
  }
  return CollectiveKind::kAllGather;
}

absl::Status CheckElements(const GpuLeg& leg, const Collective& call) {
  const auto bytes = static_cast<uint64_t>(ItemBytes(call.type));
  if (call.from % bytes == 0 && call.to % bytes == 0) return absl::OkStatus();
  const TensorTable& tensors = leg.compiled->part().part().tensors();
  return absl::InvalidArgumentError(
      absl::StrCat("what is added at device ", ToString(tensors.devices()[leg.compiled->device()]),
                   ": expected memory at multiples of the ", bytes,
                   " bytes of an element, found addresses ", call.from, " and ", call.to));
}

absl::StatusOr<Collective> CallOf(const GpuLeg& leg, StepCollective collective, int32_t tensor) {
  const TensorTable& tensors = leg.compiled->part().part().tensors();
  const DeviceRank device = leg.compiled->device();
  const int32_t group = tensors.group_of_tensor()[tensor];
  RETURN_IF_ERROR(CheckTile(*leg.compiled, Side::kSource, tensor, leg.tiles.source));
  RETURN_IF_ERROR(CheckTile(*leg.compiled, Side::kDestination, tensor, leg.tiles.destination));
  Collective call{.kind = KindOf(collective),
                  .from = leg.tiles.source[tensor],
                  .to = leg.tiles.destination[tensor]};
  if (!Reduces(collective)) {
    call.count = RowsOf(tensors, Side::kSource, group, device).bytes;
    return call;
  }
  call.type = tensors.groups()[group].type;
  call.count = RowsOf(tensors, Side::kDestination, group, device).bytes / ItemBytes(call.type);
  if (leg.reduction.divisor != 1) call.reduction = CollectiveReduction::kAverage;
  RETURN_IF_ERROR(CheckElements(leg, call));
  return call;
}

}  // namespace

absl::StatusOr<std::vector<Collective>> CollectiveCallsOf(const GpuLeg& leg) {
  std::vector<Collective> calls;
  if (leg.compiled->group() == nullptr) return calls;
  const StepCollective collective = leg.compiled->collective()->kind;
  const TensorTable& tensors = leg.compiled->part().part().tensors();
  for (int32_t tensor = 0; tensor < std::ssize(tensors.group_of_tensor()); ++tensor) {
    ASSIGN_OR_RETURN(calls.emplace_back(), CallOf(leg, collective, tensor));
  }
  return calls;
}

}  // namespace crossmesh
