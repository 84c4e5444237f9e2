#include "planner/pipeline/blocking_timeline.h"

#include "common/base/status_macros.h"

#include <algorithm>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Such an op would not stand before what waits for it.
absl::Status TakesNoTime(const Op& op) {
  return absl::InvalidArgumentError(
      absl::StrCat("op ", ToString(op),
                   ": expected that it takes time, since its output passes between ranks that "
                   "block; found 0"));
}

}  // namespace

absl::StatusOr<std::vector<BlockingStep>> OrderBlockingSteps(const OpTable& ops) {
  PipelineProfile free = ops.profile();
  // Ranks must agree on one order of all steps before they know how long each is held: the order in
  // which free transfers would let them happen.
  for (EdgeProfile& edge : free.edges) edge.forward_seconds = edge.backward_seconds = 0;
  ASSIGN_OR_RETURN(const OpTable free_ops, OpTable::Create(ops.schedule(), free));
  ASSIGN_OR_RETURN(const PipelineTimeline run, SimulatePipeline(free_ops, TransferModel::kLatency));
  std::vector<BlockingStep> steps;
  for (OpIndex index = 0; index < ops.size(); ++index) {
    steps.push_back({.seconds = run.ops[index].begin, .is_op = true, .op = index});
    for (const TransferIndex transfer : ops.TransfersOutOf(ops.op(index))) {
      if (!ops.Passes(transfer)) continue;
      // Equal times are ordered by kind, which would put the message before the op that makes it.
      if (run.ops[index].begin == run.ops[index].end) return TakesNoTime(ops.op(index));
      steps.push_back({.seconds = run.ops[index].end, .op = index, .transfer = transfer});
    }
  }
  std::ranges::sort(steps);
  return steps;
}

absl::StatusOr<PipelineTimeline> SimulateBlocking(const OpTable& ops) {
  ASSIGN_OR_RETURN(const std::vector<BlockingStep> steps, OrderBlockingSteps(ops));
  PipelineTimeline run{.ops = std::vector<TimeSpan>(ops.size()),
                       .messages = std::vector<TimeSpan>(ops.messages())};
  std::vector<double> free_at(ops.profile().ranks(), 0);
  for (const BlockingStep& step : steps) {
    const Op& op = ops.op(step.op);
    double& own = free_at[ops.rank_of(step.op)];
    if (step.is_op) {  // its inputs have come by steps before it, which held this rank
      const OpIndex first = ops.StepOf(step.op);
      if (first == step.op) run.ops[first] = {own, own + ops.SecondsOfStep(first)};
      run.ops[step.op] = run.ops[first];
      own = run.ops[first].end;
      continue;
    }
    double& other = free_at[ops.rank_of(ops.ConsumerOf(step.transfer, op.microbatch))];
    const double begin = std::max(own, other);
    own = other = begin + ops.SecondsOf(step.transfer, op.microbatch);
    run.messages[ops.MessageOf(step.transfer, op.microbatch)] = {begin, own};
  }
  return run;
}

}  // namespace crossmesh
