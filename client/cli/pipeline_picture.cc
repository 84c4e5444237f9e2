#include "client/cli/pipeline_picture.h"

#include <utility>

#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using nlohmann::json;

// Two fused ops share their block by the times that they take alone.
TimeSpan DrawnSpan(const OpTable& ops, const PipelineTimeline& run, OpIndex index) {
  const OpIndex step = ops.StepOf(index);
  const TimeSpan& span = run.ops[index];
  if (ops.EndOf(step) == step + 1) return span;
  const double forward = ops.profile().SecondsOf(ops.op(step));
  const double sum = forward + ops.profile().SecondsOf(ops.op(step + 1));
  const double middle = span.begin + (span.end - span.begin) * (sum > 0 ? forward / sum : 0.5);
  return index == step ? TimeSpan{span.begin, middle} : TimeSpan{middle, span.end};
}

json Timeline(const OpTable& ops, const PipelineTimeline& run) {
  json drawn = json::array();
  for (OpIndex i = 0; i < ops.size(); ++i) {
    const TimeSpan span = DrawnSpan(ops, run, i);
    drawn.push_back({ToString(Unfused(ops.op(i))), span.begin, span.end});
  }
  return {{"seconds", run.seconds}, {"ops", std::move(drawn)}};
}

// Between ranks only: what stays on a rank takes no time.
json Transfers(const OpTable& ops, const PipelineTimeline& run) {
  json drawn = json::array();
  for (TransferIndex transfer = 0; transfer < ops.transfers(); ++transfer) {
    if (!ops.Passes(transfer)) continue;
    for (MicrobatchIndex m = 0; m < ops.schedule().microbatches; ++m) {
      const TimeSpan& span = run.messages[ops.MessageOf(transfer, m)];
      drawn.push_back({OpTable::IsForward(transfer) ? "F" : "B",
                       ops.rank_of(ops.ProducerOf(transfer, m)),
                       ops.rank_of(ops.ConsumerOf(transfer, m)), span.begin, span.end});
    }
  }
  return drawn;
}

json Run(const DrawnPipeline& drawn) {
  const OpTable& ops = *drawn.ops;
  json stage_ranks = json::array();
  for (const StageProfile& stage : ops.profile().stages) stage_ranks.push_back(stage.rank);
  json run = {{"title", drawn.title},
              {"ranks", ops.profile().ranks()},
              {"microbatches", ops.schedule().microbatches},
              {"stage_ranks", std::move(stage_ranks)},
              {"planned", Timeline(ops, *drawn.run)},
              {"transfers", Transfers(ops, *drawn.run)}};
  if (drawn.measured != nullptr) run["measured"] = Timeline(ops, *drawn.measured);
  return run;
}

}  // namespace

std::string PipelinePicture(const std::vector<DrawnPipeline>& runs, DrawnTime time) {
  json drawn = json::array();
  for (const DrawnPipeline& run : runs) drawn.push_back(Run(run));
  const json picture = {{"picture", "pipeline"},
                        {"has_unit", time == DrawnTime::kSeconds},
                        {"runs", std::move(drawn)}};
  // A title may have any bytes; a document may not.
  return picture.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace crossmesh
