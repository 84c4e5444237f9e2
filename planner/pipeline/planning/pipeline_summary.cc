#include "common/base/format.h"
#include "common/plan/plan_warnings.h"
#include "planner/pipeline/planning/microbatch_sizes.h"
#include "planner/pipeline/planning/plan_ports.h"
#include "planner/pipeline/planning/planned_pipeline.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

// Writes the parts of a summary. Thread-compatible.
class SummaryWriter {
 public:
  explicit SummaryWriter(const PlannedPipeline& planned)
      : planned_(planned), topology_(planned.description.topology.value_or(Topology())) {}

  v1::PipelinePlan Write() && {
    SetFigures();
    SetBusiestPort();
    for (const PlannedTransfer& transfer : planned_.transfers) AddTransfer(transfer);
    for (RankIndex rank = 0; rank < planned_.profile.ranks(); ++rank) AddRank(rank);
    if (planned_.search) AddCandidates(*planned_.search);
    AddWarnings();
    return std::move(summary_);
  }

 private:
  void SetFigures() {
    summary_.set_id(planned_.id.ToString());
    summary_.set_pipeline(planned_.description.name);
    summary_.set_schedule(planned_.schedule_name);
    for (const std::vector<Op>& row : planned_.schedule.ranks) {
      summary_.add_rank_ops(absl::StrJoin(
          row, " ", [](std::string* out, const Op& op) { absl::StrAppend(out, ToString(op)); }));
    }
    summary_.set_predicted_seconds(planned_.run.seconds);
    summary_.set_span_seconds(planned_.run.span_seconds);
    summary_.set_bubble_ratio(BubbleRatio(*planned_.ops, planned_.run));
    const PipelineBound& bound = planned_.bound;
    summary_.set_bound_seconds(bound.seconds());
    summary_.set_bound_kind(std::string(PipelineBoundKindName(bound.kind())));
    summary_.set_bound_place(bound.at(bound.kind()).place);
    summary_.set_transfer_model(std::string(TransferModelName(planned_.model)));
    summary_.set_proven_ops(planned_.proof.ops);
    summary_.set_proven_transfers(planned_.proof.messages);
  }

  void SetBusiestPort() {
    std::map<std::string, int64_t> bytes_of;  // in an iteration; by name, so that ties are too
    const std::vector<MicrobatchSize> sizes = SizesOf(planned_.description.samples);
    for (const PlannedTransfer& transfer : planned_.transfers) {
      if (transfer.plan == nullptr) continue;
      const auto size = std::ranges::find(sizes, transfer.samples, &MicrobatchSize::samples);
      for (const PortBytes& port : PortsOf(*transfer.plan, topology_)) {
        bytes_of[port.port] += port.bytes * size->count;
      }
    }
    for (const auto& [port, bytes] : bytes_of) {
      if (bytes <= summary_.busiest_port_bytes()) continue;
      summary_.set_busiest_port(port);
      summary_.set_busiest_port_bytes(bytes);
    }
  }

  void AddTransfer(const PlannedTransfer& transfer) {
    v1::PipelineTransferSummary& out = *summary_.add_transfers();
    out.set_edge(transfer.index / 2);
    out.set_backward(!OpTable::IsForward(transfer.index));
    out.set_samples(transfer.samples);
    out.set_seconds(transfer.seconds);
    out.set_buffers(transfer.buffers);
    if (transfer.plan == nullptr) return;
    out.set_bound_seconds(transfer.plan->figures().bound.seconds);
    out.set_bytes(transfer.plan->figures().network_bytes);
    // Of a plan that is carried out, even where the time was given by hand.
    out.set_plan_id(transfer.plan->id().ToString());
  }

  void AddRank(RankIndex rank) {
    const RankMemory& memory = planned_.proof.memory[rank];
    v1::PipelineRankSummary& out = *summary_.add_ranks();
    out.set_peak_bytes(memory.bytes().value());
    out.set_peak_op(ToString(memory.peak));
    out.set_static_bytes(memory.static_bytes.value());
    out.set_buffer_bytes(memory.buffer_bytes.value());
    const OpTable& ops = *planned_.ops;
    double busy = 0;
    for (OpIndex step = ops.first(rank); step < ops.first(rank + 1); step = ops.EndOf(step)) {
      busy += planned_.run.ops[step].end - planned_.run.ops[step].begin;
    }
    out.set_busy_seconds(busy);
  }

  void AddCandidates(const SearchResult& search) {
    for (const FoundSchedule& found : search.pareto) AddCandidate(found, true);
    for (const FoundSchedule& found : search.others) AddCandidate(found, false);
  }

  void AddCandidate(const FoundSchedule& found, bool is_pareto) {
    v1::PipelineCandidate& out = *summary_.add_candidates();
    out.set_name(found.name);
    out.set_seconds(found.seconds);
    out.set_span_seconds(found.span_seconds);
    out.set_gap(found.gap);
    out.set_peak_bytes(found.peak_bytes.value());
    out.set_pareto(is_pareto);
    out.set_bubble_ratio(found.bubble_ratio);
  }

  void AddWarnings() {
    bool is_assumed = false;
    for (const PlannedTransfer& transfer : planned_.transfers) {
      if (transfer.plan == nullptr) continue;
      is_assumed |= transfer.plan->figures().assumed_rates;
      for (const std::string& warning : PlanWarnings(transfer.plan->tensors(), topology_)) {
        Warn(warning);
      }
    }
    if (is_assumed && topology_.hosts().empty()) {
      Warn(absl::StrCat("No host of the network is described: all are taken to have one NIC of ",
                        FormatRate(static_cast<double>(topology_.assumed_bytes_per_second())),
                        "."));
    }
    for (const PlannedTransfer& transfer : planned_.transfers) WarnOfBuffers(transfer);
  }

  void WarnOfBuffers(const PlannedTransfer& transfer) {
    if (transfer.buffers >= transfer.buffers_needed) return;
    const PipelineDescription::Edge& edge = planned_.description.edges[transfer.index / 2];
    Warn(absl::StrCat("The edge from stage ", edge.from, " to ", edge.to, ", ",
                      OpTable::IsForward(transfer.index) ? "forward" : "backward",
                      ", has memory for ", transfer.buffers, " of the ", transfer.buffers_needed,
                      " messages that there would be at once: the prediction counts the waits."));
  }

  void Warn(const std::string& warning) {
    if (std::ranges::find(summary_.warnings(), warning) == summary_.warnings().end()) {
      summary_.add_warnings(warning);
    }
  }

  const PlannedPipeline& planned_;
  const Topology topology_;
  v1::PipelinePlan summary_;
};

}  // namespace

v1::PipelinePlan PlannedPipeline::Summary() const { return SummaryWriter(*this).Write(); }

}  // namespace crossmesh
