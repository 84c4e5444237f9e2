#pragma once

#include "common/plan/step_kind.h"
#include "planner/redistribute/local_type.h"

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// One step of a derivation, and what it costs. Immutable.
struct RedistributionStep {
  StepKind kind = StepKind::kSlice;
  LocalType before;
  LocalType after;
  std::vector<int32_t> atoms;  // whose coordinates tell the members of a group apart, ascending
  int64_t group = 1;           // devices of a group; all of the mesh in a permute and a relay
  int64_t bytes_received = 0;  // by the busiest device
  int64_t busiest_device = 0;  // of a relay
  int64_t live_bytes = 0;      // in, out and declared staging of the fullest device
  double seconds = 0;          // by the time model; 0 without one
  bool is_nccl_collective = false;  // by the time model
};

// What a step is to do. Refers to both.
struct TypeChange {
  const LocalType& before;
  const LocalType& after;
};

// Bytes that an executor declares beside the step's in and out, on a device, for every step that
// communicates.
struct StepStaging {
  int64_t bytes = 0;
};

// The step of that kind from one type to the other, with all but its seconds. InvalidArgument,
// which names step and types, when either type is not valid or the kind cannot do that:
//  slice           replicated atoms become cuts
//  all_gather      cuts become replicated
//  all_to_all      cuts become other cuts, none of whose digits was in use: so all pieces have one
//                  size
//  permute         as many local elements of the same blocks, held by other devices
//  reduce_scatter  partial atoms become cuts that were not in use
//  all_reduce      partial atoms become replicated
//  relay           anything, with the same partial atoms
// Cost: the atoms; devices for a relay.
absl::StatusOr<RedistributionStep> MakeStep(const TypeSpace& space, StepKind kind,
                                            TypeChange change, StepStaging staging = {});

// Elements that the busiest device receives in a step that is no relay and moves something: of so
// many local elements before, in groups of so many devices.
int64_t ReceivedElements(StepKind kind, int64_t local_elements, int64_t group);

// For each device of a permute the one whose block it gets: itself wherever its block stays, else
// one that differs from it in as few atoms as possible, major ones first. A bijection, among
// devices of one partial coordinate. The types must be those of a permute. Cost: devices times
// atoms.
std::vector<int64_t> PermuteSources(const TypeSpace& space, const LocalType& before,
                                    const LocalType& after);

}  // namespace crossmesh
