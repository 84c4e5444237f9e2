#pragma once

#include "common/base/clock.h"
#include "common/mesh/device.h"
#include "controller/dispatch/planned_reshard.h"
#include "controller/operation/operation_machine.h"

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <absl/status/statusor.h>

namespace crossmesh {

// What of `first` is still to be moved, without devices whose workers are lost or refused, and
// around links that have failed by now, if there is a way.
struct Remainder {
  std::shared_ptr<const PlannedReshard> first;
  std::set<int32_t> replicas;
  std::set<DeviceId> lost;
  std::set<std::pair<std::string, std::string>> failed_links = {};  // as ReshardRequest has them
};

// What RemainingTensors and PlannedReshard::Create find.
absl::StatusOr<std::shared_ptr<const PlannedReshard>> PlanRemainder(const Remainder& remainder,
                                                                    const Clock& clock);

// Those of the replicas that no plan can serve, and why, of the first: a device of theirs is lost,
// or all that hold some bytes. Cost: a slicing for each replica.
Hopeless FindHopeless(const Remainder& remainder);

}  // namespace crossmesh
