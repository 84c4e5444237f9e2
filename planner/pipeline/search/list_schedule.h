#pragma once

#include "planner/pipeline/profile.h"
#include "planner/pipeline/schedule.h"

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

struct ListOptions {
  BackwardForm form = BackwardForm::kFull;
  // Microbatches whose gradients of the input a stage may have before it, by stage, at least 1.
  std::vector<int32_t> windows;
  // The part of a gradient of the weights that may get in the way of the next op.
  double overlap = 1;
  // A gradient that is more in the way than that begins only where the rank could not wait for the
  // next op and still end by this time. 0: never.
  double target_seconds = 0;
  // Forward ops go before backward ops when the backward ops of all that are left take at most this
  // times the way from forward to backward op: so that there is something to do while the last
  // microbatch is under way.
  double rush = 0;
  // Memory is set aside when a stage takes a microbatch, wherever the rank can still finish those
  // that it has begun, one after the other; else for all stages of the rank at once, when the first
  // of them takes it.
  bool by_stage = false;
};

// A schedule made by simulating it: whenever a rank is free it begins the backward op that could
// begin first, else a forward op, where windows and memory allow it, else a gradient of the
// weights. Stages take microbatches in ascending order, and no stage shuts out a later one.
// Messages share nothing. Memory is set aside as for the largest microbatch.
//
// InvalidArgument: no microbatches, or windows that are not one for each stage, at least 1; what
// Validate finds. ResourceExhausted when a rank has no room for one microbatch. Cost: ops, times
// log of the ranks and the stages of a rank; by stage, also times the microbatches under way.
absl::StatusOr<Schedule> MakeListSchedule(const PipelineProfile& profile, int32_t microbatches,
                                          const ListOptions& options);

}  // namespace crossmesh
