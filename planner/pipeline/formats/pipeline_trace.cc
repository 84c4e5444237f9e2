#include "planner/pipeline/formats/pipeline_trace.h"

#include <array>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

using nlohmann::ordered_json;

// Processes of the trace.
constexpr int32_t kRanks = 0;
constexpr int32_t kTransfers = 1;

ordered_json Named(absl::string_view what, int32_t process, int32_t row, std::string name) {
  return {{"ph", "M"},
          {"name", std::string(what)},
          {"pid", process},
          {"tid", row},
          {"args", {{"name", std::move(name)}}}};
}

absl::string_view CategoryOf(OpKind kind) {
  constexpr std::array<absl::string_view, 4> kNames = {"forward", "backward", "input gradient",
                                                       "weight gradient"};
  return kNames[static_cast<size_t>(kind)];
}

ordered_json Slice(std::string name, const Op& op, absl::string_view category,
                   const TimeSpan& span) {
  constexpr double kMicroseconds = 1e6;
  return {{"ph", "X"},
          {"name", std::move(name)},
          {"cat", std::string(category)},
          {"ts", span.begin * kMicroseconds},
          {"dur", (span.end - span.begin) * kMicroseconds},
          {"args", {{"stage", op.stage}, {"microbatch", op.microbatch}}}};
}

// Of an op, or of two that are fused.
ordered_json StepSlice(const OpTable& ops, OpIndex step, const TimeSpan& span) {
  const Op& op = ops.op(step);
  if (!op.is_fused) return Slice(ToString(op), op, CategoryOf(op.kind), span);
  const Op& backward = ops.op(step + 1);
  ordered_json slice = Slice(ops.NameOfStep(step), op, "forward and backward", span);
  slice["args"]["backward_stage"] = backward.stage;
  slice["args"]["backward_microbatch"] = backward.microbatch;
  return slice;
}

void AddSlice(ordered_json& events, int32_t process, int32_t row, ordered_json slice) {
  slice["pid"] = process;
  slice["tid"] = row;
  events.push_back(std::move(slice));
}

std::string TransferName(const OpTable& ops, TransferIndex transfer) {
  const EdgeProfile& edge = ops.EdgeOf(transfer);
  return OpTable::IsForward(transfer) ? absl::StrCat("activations ", edge.from, " > ", edge.to)
                                      : absl::StrCat("gradients ", edge.to, " > ", edge.from);
}

}  // namespace

ordered_json PipelineTrace(const OpTable& ops, const PipelineTimeline& run) {
  ordered_json events = ordered_json::array();
  events.push_back(Named("process_name", kRanks, 0, "ranks"));
  events.push_back(Named("process_name", kTransfers, 0, "transfers"));
  for (RankIndex rank = 0; rank < ops.profile().ranks(); ++rank) {
    events.push_back(Named("thread_name", kRanks, rank, absl::StrCat("rank ", rank)));
    for (OpIndex step = ops.first(rank); step < ops.first(rank + 1); step = ops.EndOf(step)) {
      AddSlice(events, kRanks, rank, StepSlice(ops, step, run.ops[step]));
    }
  }
  for (TransferIndex transfer = 0; transfer < ops.transfers(); ++transfer) {
    if (!ops.Passes(transfer)) continue;
    events.push_back(Named("thread_name", kTransfers, transfer, TransferName(ops, transfer)));
    for (MicrobatchIndex m = 0; m < ops.schedule().microbatches; ++m) {
      const Op op = Unfused(ops.op(ops.ProducerOf(transfer, m)));
      AddSlice(events, kTransfers, transfer,
               Slice(ToString(op), op, "transfer", run.messages[ops.MessageOf(transfer, m)]));
    }
  }
  return {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
}

}  // namespace crossmesh
