#pragma once

#include "planner/pipeline/profile.h"
#include "planner/pipeline/schedule.h"

#include <cstdint>

#include <absl/status/statusor.h>

namespace crossmesh {

struct ExactSchedule {
  Schedule schedule;
  double seconds = 0;
  int64_t nodes = 0;  // of the search
};

// A schedule that no other one beats under TransferModel::kLatency and the memory of the ranks:
// branch and bound over active schedules (Giffler and Thompson 1960), each stage taking
// microbatches in ascending order, which costs nothing, since all are alike. For pipelines of a few
// stages and microbatches: what others are held to. Where ranks have several stages and limits of
// memory, waiting for memory may pay, and active schedules don't do that: others may be faster.
//
// ResourceExhausted when it takes more nodes, or no rank order fits the memory; InvalidArgument as
// ComputePipelineBound, with microbatches of several sizes, and with sequences in parts. Cost:
// exponential.
absl::StatusOr<ExactSchedule> FindExactSchedule(const PipelineProfile& profile,
                                                int32_t microbatches, BackwardForm form,
                                                int64_t nodes_max);

}  // namespace crossmesh
