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

ordered_json Slice(const Op& op, absl::string_view category, const TimeSpan& span) {
  constexpr double kMicroseconds = 1e6;
  return {{"ph", "X"},
          {"name", ToString(op)},
          {"cat", std::string(category)},
          {"ts", span.begin * kMicroseconds},
          {"dur", (span.end - span.begin) * kMicroseconds},
          {"args", {{"stage", op.stage}, {"microbatch", op.microbatch}}}};
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
    for (OpIndex index = ops.first(rank); index < ops.first(rank + 1); ++index) {
      const Op& op = ops.op(index);
      AddSlice(events, kRanks, rank, Slice(op, CategoryOf(op.kind), run.ops[index]));
    }
  }
  for (TransferIndex transfer = 0; transfer < ops.transfers(); ++transfer) {
    if (!ops.Passes(transfer)) continue;
    events.push_back(Named("thread_name", kTransfers, transfer, TransferName(ops, transfer)));
    for (MicrobatchIndex m = 0; m < ops.schedule().microbatches; ++m) {
      const Op& op = ops.op(ops.ProducerOf(transfer, m));
      AddSlice(events, kTransfers, transfer,
               Slice(op, "transfer", run.messages[ops.MessageOf(transfer, m)]));
    }
  }
  return {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
}

}  // namespace crossmesh
