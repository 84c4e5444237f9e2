// How many messages the ends of a transfer have memory for.

#pragma once

#include "planner/pipeline/memory.h"
#include "planner/pipeline/op_table.h"
#include "planner/pipeline/planning/edge_plans.h"
#include "planner/pipeline/timeline.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// For each plan, as many as its messages need to be on their way as in the run, and one more: a
// sender has a message from the begin of its op to the end of the transfer, a receiver from the
// begin of the transfer to the end of its op. At most one for each microbatch of the size. Cost:
// transfers, times their logarithm.
std::vector<int32_t> NeededBuffers(const OpTable& ops, const PipelineTimeline& run,
                                   const std::vector<int64_t>& samples,
                                   const std::vector<EdgePlan>& plans);

// The messages of a plan, in the order in which their producers stand.
std::vector<MicrobatchIndex> MessagesOf(const OpTable& ops, const EdgePlan& plan,
                                        const std::vector<int64_t>& samples);

// Whose place each message takes where there are so many of each plan. Cost: ops, for each plan.
MessagePlaces PlacesOf(const OpTable& ops, const std::vector<int64_t>& samples,
                       const std::vector<EdgePlan>& plans, const std::vector<int32_t>& buffers);

// Sets the memory of the profile's edges to so many messages of each plan.
void SetBufferBytes(const std::vector<EdgePlan>& plans, const std::vector<int32_t>& buffers,
                    PipelineProfile& profile);

// Takes buffers away, at least 1 of each left, where a rank would hold more than it may beside what
// it holds at its peak: always where most are, the first one of equals. Sets the profile's memory.
// Cost: edges, for each that is taken away.
void FitBuffers(const std::vector<RankMemory>& peak, const std::vector<EdgePlan>& plans,
                std::vector<int32_t>& buffers, PipelineProfile& profile);

}  // namespace crossmesh
