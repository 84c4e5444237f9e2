#include "planner/layers/layer_exposures.h"
#include "planner/layers/planned_layers.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace crossmesh {
namespace {

// With more, clients' messages would grow too large.
constexpr size_t kToldOpsMax = 200'000;

v1::LayerRunSummary RunOf(const PlannedLayers& planned) {
  v1::LayerRunSummary summary;
  const auto& [name, ranks, ops, transfers] = planned.program;
  for (size_t op = 0; op < ops.size() && ops.size() <= kToldOpsMax; ++op) {
    v1::LayerRunSummary::Op& out = *summary.add_ops();
    out.set_name(ops[op].name);
    out.set_rank(ops[op].rank);
    out.set_begin(planned.run.ops[op].begin);
    out.set_end(planned.run.ops[op].end);
    out.set_waits_for_transfers(planned.run.waits[op].for_transfers);
    out.set_waits_for_others(planned.run.waits[op].for_others);
  }
  for (size_t t = 0; t < transfers.size(); ++t) {
    v1::LayerRunSummary::Transfer& out = *summary.add_transfers();
    out.set_name(transfers[t].name);
    out.set_from(planned.program.from(transfers[t]));
    out.set_to(planned.program.to(transfers[t]));
    out.set_seconds(planned.transfers[t].seconds());
    out.set_bytes(planned.transfers[t].network_bytes());
    out.set_messages(static_cast<int32_t>(transfers[t].messages.size()));
    out.set_buffers(transfers[t].buffers);
    out.set_exposed_seconds(planned.run.exposures[t].exposed);
    out.set_hidden_seconds(planned.run.exposures[t].hidden);
    out.set_plan_id(planned.transfers[t].plan->id().ToString());
  }
  const std::vector<LayerExposure> layers = ExposuresByLayer(planned.program, planned.run);
  for (const LayerExposure& layer : layers) {
    if (layers.size() > kToldOpsMax) break;
    v1::LayerRunSummary::Layer& out = *summary.add_layers();
    out.set_name(layer.name);
    out.set_op_seconds(layer.op_seconds);
    out.set_exposed_seconds(layer.messages.exposed);
    out.set_hidden_seconds(layer.messages.hidden);
  }
  return summary;
}

}  // namespace

v1::PipelinePlan PlannedLayers::Summary() const {
  v1::PipelinePlan summary;
  summary.set_id(id.ToString());
  summary.set_pipeline(program.name);
  summary.set_predicted_seconds(run.seconds);
  summary.set_span_seconds(run.seconds);
  summary.set_transfer_model("ports");
  std::map<std::string, int64_t> bytes_of;  // in an iteration
  for (size_t t = 0; t < transfers.size(); ++t) {
    const auto messages = static_cast<int64_t>(program.transfers[t].messages.size());
    summary.set_proven_transfers(summary.proven_transfers() + messages);
    for (const PortBytes& port : transfers[t].ports) bytes_of[port.port] += port.bytes * messages;
  }
  summary.set_proven_ops(static_cast<int64_t>(program.ops.size()));
  for (const auto& [port, bytes] : bytes_of) {
    if (bytes <= summary.busiest_port_bytes()) continue;
    summary.set_busiest_port(port);
    summary.set_busiest_port_bytes(bytes);
  }
  for (const RankBytes& rank : memory) {
    v1::PipelineRankSummary& out = *summary.add_ranks();
    out.set_peak_bytes(rank.bytes.value());
    out.set_buffer_bytes(rank.bytes.value());
  }
  for (const LayerProgram::Op& op : program.ops) {
    v1::PipelineRankSummary& rank = *summary.mutable_ranks(op.rank);
    rank.set_busy_seconds(rank.busy_seconds() + op.seconds);
  }
  *summary.mutable_layers() = RunOf(*this);
  return summary;
}

}  // namespace crossmesh
