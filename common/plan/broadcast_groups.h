#pragma once

#include "common/plan/id_sets.h"
#include "common/plan/plan.h"
#include "common/plan/worker_part.h"

#include <cstddef>
#include <span>

#include <absl/status/status.h>

namespace crossmesh {

// A broadcast group is a set of at least three devices such that every relay which touches one of
// them goes from one of them to all the others: so they exchange nothing with anybody else.
inline constexpr size_t kBroadcastGroupMin = 3;

// All broadcast groups that there are among so many devices, in the order of their first relays.
// Each receiver of a relay must be the end of one of its hops. Cost: that of sorting each relay's
// devices.
IdSetList FindBroadcastGroups(std::span<const Relay> relays, std::span<const Hop> hops,
                              size_t devices);

// Proves that a plan's broadcast groups are some. Internal, naming the relay or device. Cost:
// linear in hops.
absl::Status ProveBroadcastGroups(const Plan& plan);
// The same of a worker's part: of each relay, where it gets to among the worker's own devices.
absl::Status ProveBroadcastGroups(const WorkerPart& part);

}  // namespace crossmesh
