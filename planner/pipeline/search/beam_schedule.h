#pragma once

#include "planner/pipeline/profile.h"
#include "planner/pipeline/schedule.h"

#include <cstdint>

#include <absl/status/statusor.h>

namespace crossmesh {

// A schedule that is built op by op in many ways at once: of the active schedules that begin alike
// (Giffler and Thompson 1960) the `width` with the least bounds of their time are followed, from
// one op to the next; none of them has done the same as a better one, and nothing of it sooner. For
// small schedules, above all where ranks have several stages and no list knows which one should go
// first. A forward op takes memory only where all microbatches under way can still be finished, one
// after the other. Messages share nothing; stages take microbatches in ascending order.
//
// InvalidArgument: no microbatches, or no width; microbatches of several sizes; sequences in parts;
// what Validate finds. ResourceExhausted where memory allows none of them to go on. Cost: ops,
// times width, times stages and the microbatches under way.
absl::StatusOr<Schedule> MakeBeamSchedule(const PipelineProfile& profile, int32_t microbatches,
                                          BackwardForm form, int32_t width);

}  // namespace crossmesh
