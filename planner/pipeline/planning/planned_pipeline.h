#pragma once

#include "common/base/cancel_check.h"
#include "common/base/digest.h"
#include "common/plan/plan.h"
#include "crossmesh/v1/pipeline.pb.h"
#include "planner/pipeline/bound.h"
#include "planner/pipeline/op_table.h"
#include "planner/pipeline/pipeline_proof.h"
#include "planner/pipeline/planning/pipeline_description.h"
#include "planner/pipeline/search/schedule_search.h"
#include "planner/pipeline/timeline.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// An edge in one direction, for microbatches of one size.
struct PlannedTransfer {
  TransferIndex index = 0;  // of the profile's edges
  int64_t samples = 0;
  double seconds = 0;                // predicted, or given by hand
  std::shared_ptr<const Plan> plan;  // proven; null where there are no tensors
  int32_t buffers = 1;               // messages for which either end has memory
  int32_t buffers_needed = 1;        // for a run in which none waits for memory
};

// A schedule for a pipeline, proven, with the plans of everything that passes between its ranks and
// its predicted run. Immutable; addresses inside stay.
struct PlannedPipeline {
  PipelineDescription description;
  PipelineProfile profile;  // costs of edges are those of their plans
  std::string schedule_name;
  Schedule schedule;
  std::unique_ptr<const OpTable> ops;  // of `schedule` and `profile`
  TransferModel model = TransferModel::kLatency;
  PipelineTimeline run;  // messages wait for memory where it is short
  PipelineBound bound;   // with memory for one message of each transfer
  PipelineProof proof;
  std::vector<PlannedTransfer> transfers;  // by transfer, then in the order of the sizes
  std::optional<SearchResult> search;      // of "auto"
  Digest id;                               // of all that workers must agree on

  // Everything but the time that planning took.
  v1::PipelinePlan Summary() const;
};

// Plans every edge by PlanReshard, finds or makes the schedule, and proves it. InvalidArgument
// names the stage, edge, tensor or option; what PlanReshard, Prove, the schedules, SearchSchedules
// and ProvePipeline find; ResourceExhausted names the smallest memory that would do.
absl::StatusOr<std::shared_ptr<const PlannedPipeline>> PlanPipeline(
    PipelineDescription description, const v1::PipelineChoice& choice,
    CancelCheck cancelled = NeverCancelled);

// Every schedule that fits the placement, by the same costs, then auto, each as it is and with its
// gradients of the weights delayed where that is another one; only the latter where the choice
// wants them. v1::PipelineCandidate has what became of each; all gaps are to one bound, which holds
// for every schedule.
absl::StatusOr<std::vector<v1::PipelineCandidate>> ComparePipelineSchedules(
    const PipelineDescription& description, const v1::PipelineChoice& choice,
    CancelCheck cancelled = NeverCancelled);

}  // namespace crossmesh
