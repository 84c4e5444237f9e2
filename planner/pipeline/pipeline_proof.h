#pragma once

#include "planner/pipeline/memory.h"
#include "planner/pipeline/profile.h"
#include "planner/pipeline/queues.h"
#include "planner/pipeline/rank_actions.h"
#include "planner/pipeline/schedule.h"

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// What transfers run over.
struct PipelineTransport {
  QueueScope scope = QueueScope::kTransfer;
  ReceivePlacement receives = ReceivePlacement::kBeforeUse;
};

// What was proven, for people: its size, and the memory of every rank.
struct PipelineProof {
  int64_t ops = 0;
  int64_t messages = 0;            // between ranks
  std::vector<RankMemory> memory;  // by rank

  friend bool operator==(const PipelineProof&, const PipelineProof&) = default;
};

// Proves that
//  1. each stage and microbatch has its ops exactly once, on the rank that has the stage,
//  2. no op waits for itself,
//  3. both ends of a transfer, or of whatever coarser line the transport has, take messages in one
//     order,
//  4. no rank gets stuck even if no message may wait anywhere, so that buffers never decide it,
//  5. every rank holds at most what it may,
//  6. the parts of a sequence go forward in order and backward in reverse.
// InvalidArgument for 1 to 3 and 6, FailedPrecondition for 4, ResourceExhausted for 5; the message
// names the op, the circle, the place, or what is stuck. Cost: linear in ops and messages, but for
// 4: see SimulateQueues.
absl::StatusOr<PipelineProof> ProvePipeline(const Schedule& schedule,
                                            const PipelineProfile& profile,
                                            const PipelineTransport& transport = {});

}  // namespace crossmesh
