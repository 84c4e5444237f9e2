#include "client/cli/pipeline_report.h"

#include "client/cli/plan_report.h"
#include "client/cli/report_text.h"
#include "common/base/count_text.h"
#include "common/base/format.h"
#include "common/base/table.h"

#include <cmath>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

std::string Percent(double part) {
  return absl::StrFormat("%.1f %%", std::round(1000 * part) / 10 + 0.0);  // never -0.0
}

double GapOf(const v1::PipelinePlan& plan) {
  return plan.bound_seconds() > 0 ? plan.predicted_seconds() / plan.bound_seconds() - 1 : 0;
}

std::string RankTable(const v1::PipelinePlan& plan) {
  TextTable table({"RANK>", "BUSY>", "PART>", "PEAK MEMORY>", "AT", "STATIC>", "BUFFERS>"});
  for (int i = 0; i < plan.ranks_size(); ++i) {
    const v1::PipelineRankSummary& rank = plan.ranks(i);
    table.AddRow(
        {absl::StrCat(i), FormatSeconds(rank.busy_seconds()),
         Percent(plan.predicted_seconds() > 0 ? rank.busy_seconds() / plan.predicted_seconds() : 0),
         Bytes(rank.peak_bytes()), rank.peak_op(), Bytes(rank.static_bytes()),
         Bytes(rank.buffer_bytes())});
  }
  return table.ToString();
}

std::string TransferTable(const v1::PipelinePlan& plan) {
  TextTable table({"EDGE>", "WAY", "SAMPLES>", "TIME>", "BOUND>", "BYTES>", "BUFFERS>", "PLAN"});
  for (const v1::PipelineTransferSummary& transfer : plan.transfers()) {
    table.AddRow({absl::StrCat(transfer.edge()), transfer.backward() ? "backward" : "forward",
                  absl::StrCat(transfer.samples()), FormatSeconds(transfer.seconds()),
                  FormatSeconds(transfer.bound_seconds()), Bytes(transfer.bytes()),
                  absl::StrCat(transfer.buffers()),
                  transfer.plan_id().empty() ? "by hand" : ShortId(transfer.plan_id())});
  }
  return table.row_count() == 0 ? "" : "\n" + table.ToString();
}

}  // namespace

std::string PipelinePlanText(const v1::PipelinePlan& plan) {
  std::string text;
  const auto line = [&text](absl::string_view name, const std::string& value) {
    absl::StrAppendFormat(&text, "%-10s %s\n", name, value);
  };
  line("Schedule", plan.schedule());
  line("Predicted", absl::StrCat(FormatSeconds(plan.predicted_seconds()), ", bubble ",
                                 Percent(plan.bubble_ratio()), ", longest rank ",
                                 FormatSeconds(plan.span_seconds())));
  line("Bound",
       absl::StrCat(FormatSeconds(plan.bound_seconds()), ", by ", plan.bound_kind(), " of ",
                    plan.bound_place(), ": the schedule takes ", Percent(GapOf(plan)), " longer"));
  line("Transfers",
       absl::StrCat("share ", plan.transfer_model(),
                    plan.busiest_port().empty()
                        ? ""
                        : absl::StrCat("; the busiest port, ", plan.busiest_port(), ", carries ",
                                       Bytes(plan.busiest_port_bytes()))));
  line("Proven", absl::StrCat(CountText(plan.proven_ops(), "op", "ops"), " once each, no circle, ",
                              CountText(plan.proven_transfers(), "transfer", "transfers"),
                              " in one order at both ends, memory"));
  line("Plan", absl::StrCat(ShortId(plan.id()), ", made in ", FormatSeconds(plan.plan_seconds())));
  absl::StrAppend(&text, "\n", RankTable(plan), TransferTable(plan));
  const std::string warnings = WarningLines(plan.warnings());
  return warnings.empty() ? text : absl::StrCat(text, "\n", warnings);
}

std::string PipelineExplanation(const v1::PipelinePlan& plan) {
  std::string text;
  for (int i = 0; i < plan.rank_ops_size(); ++i) {
    absl::StrAppend(&text, "rank ", i, ": ", plan.rank_ops(i), "\n");
  }
  if (plan.candidates().empty()) return text;
  absl::StrAppend(&text, "\nLooked at, * where no other one beats it in time and memory:\n");
  TextTable table({"", "SCHEDULE", "TIME>", "SPAN>", "GAP>", "PEAK MEMORY>"});
  for (const v1::PipelineCandidate& candidate : plan.candidates()) {
    table.AddRow({candidate.pareto() ? "*" : "", candidate.name(),
                  FormatSeconds(candidate.seconds()), FormatSeconds(candidate.span_seconds()),
                  Percent(candidate.gap()), Bytes(candidate.peak_bytes())});
  }
  return absl::StrCat(text, table.ToString());
}

std::string ComparisonTable(const v1::PipelinePlan& compared) {
  TextTable table({"", "SCHEDULE", "TIME>", "SPAN>", "BUBBLE>", "GAP>", "PEAK MEMORY>"});
  std::string refused;
  for (const v1::PipelineCandidate& candidate : compared.candidates()) {
    const std::string name =
        absl::StrCat(candidate.name(), candidate.delay_weight_gradients() ? ", delayed" : "");
    if (!candidate.refused().empty()) {
      absl::StrAppend(&refused, name, ": ", candidate.refused(), "\n");
      continue;
    }
    table.AddRow({candidate.pareto() ? "*" : "", name, FormatSeconds(candidate.seconds()),
                  FormatSeconds(candidate.span_seconds()), Percent(candidate.bubble_ratio()),
                  Percent(candidate.gap()), Bytes(candidate.peak_bytes())});
  }
  std::string text = absl::StrCat(table.ToString(),
                                  "\n* no other one beats it in time and memory.\n"
                                  "delayed: gradients of the weights come after those of the input "
                                  "(--delay-weight-gradients).\n");
  if (!compared.busiest_port().empty()) {
    absl::StrAppend(&text, "Whatever the schedule, ", compared.busiest_port(), " carries ",
                    Bytes(compared.busiest_port_bytes()), " in an iteration.\n");
  }
  return refused.empty() ? text : absl::StrCat(text, "\nNot possible here:\n", refused);
}

}  // namespace crossmesh
