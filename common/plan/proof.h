#pragma once

#include "common/base/cancel_check.h"
#include "common/plan/plan.h"

#include <cstdint>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

struct ProofLimits {
  // Most bytes that the operation may have on a device at once: source tiles with their scales,
  // destination tiles (twice under kShadow, since the old arena lives until commit; once less where
  // the source tiles are of the same storage) and staging; where the source is released, what of
  // source and destination is there at a time. Other storages are not counted. 0: no limit.
  int64_t device_bytes_max = 0;
  int64_t staging_bytes = 0;  // that the executor sets aside per device
};

// How many arenas of a destination a device has: a shadow lives beside the one that it replaces,
// which is the source's where both are one storage.
inline int64_t DestinationArenas(BindingMode binding, bool shared_storage, int64_t source_bytes) {
  const int64_t arenas = binding == BindingMode::kShadow ? 2 : 1;
  return shared_storage && source_bytes > 0 ? arenas - 1 : arenas;
}

// What was proven, with its size; figures for people.
struct Proof {
  int64_t classes = 0;
  int64_t relays = 0;
  int64_t hops = 0;
  int64_t channels = 0;
  int64_t destination_bytes = 0;  // each written exactly once
  int64_t peak_device_bytes = 0;
  std::string peak_device;  // where, and what makes it up; empty when nothing is held
};

// Proves, class by class, that
//  1. the classes are those of the layouts, and every destination tile is covered by them exactly
//     once (checked by volume and containment, not by the planner's own tables),
//  2. every receiver of a class gets every packed byte exactly once: by a copy if it holds it, else
//     through relays whose ranges tile [0, bytes) for it; no device gets what it does not need,
//  3. every hop leaves from a slot that holds those bytes at that moment: the root is a holder, any
//     other is the end of an earlier hop of the same relay,
//  4. relays are cut at element boundaries,
//  5. places in each channel are 0, 1, ... without gaps, and the data edges together with the
//     channel orders are acyclic, so that nothing can deadlock with zero buffering,
//  6. under kInPlace with shared storage nothing is overwritten before it is read: a device that is
//     on both sides keeps each tile where it is,
//  7. live bytes per device stay within the limits,
//  8. broadcast groups are such (broadcast_groups.h), M2N can be asked (m2n_proof.h), and each
//     device is served by one medium (media.h).
// FailedPrecondition for 6 and ResourceExhausted for 7, Internal for the others; the message names
// relay, class, device and byte range. Cancelled when it is not wanted any more. Cost: linear in
// cells, relays and hops.
absl::StatusOr<Proof> Prove(const Plan& plan, const ProofLimits& limits = {},
                            CancelCheck cancelled = NeverCancelled);

}  // namespace crossmesh
