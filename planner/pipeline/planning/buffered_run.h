#pragma once

#include "planner/pipeline/memory.h"
#include "planner/pipeline/op_table.h"
#include "planner/pipeline/planning/edge_plans.h"
#include "planner/pipeline/search/schedule_judge.h"
#include "planner/pipeline/timeline.h"

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// What messages pass between ranks, and how.
struct MessageTraffic {
  const std::vector<int64_t>& samples;  // by microbatch
  const std::vector<EdgePlan>& plans;
  TransferModel model = TransferModel::kLatency;
};

// A schedule with as much memory for messages as it needs, or as is left.
struct BufferedRun {
  PipelineTimeline run;            // messages wait where memory is short
  std::vector<RankMemory> memory;  // by rank
  std::vector<int32_t> buffers;    // messages of each plan for which either end has memory
  std::vector<int32_t> needed;     // for a run in which none waits for memory
};

// ResourceExhausted where a rank holds more than it may with one message of each plan, where ranks
// would wait for memory for ever, and under kBlocking where any message would wait; what
// SimulatePipeline finds. Cost: that of SimulatePipeline, and of NeededBuffers.
absl::StatusOr<BufferedRun> RunWithBuffers(const OpTable& ops, const MessageTraffic& traffic);

// As RunWithBuffers. What the traffic refers to must outlive it.
ScheduleJudge JudgeByBuffers(const MessageTraffic& traffic);

}  // namespace crossmesh
