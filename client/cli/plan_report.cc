#include "client/cli/plan_report.h"

#include "client/cli/report_text.h"
#include "common/base/count_text.h"
#include "common/base/format.h"
#include "common/base/table.h"

#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

std::string Terms(const v1::PlanSummary& summary) {
  std::string terms = absl::StrCat("ingress ", FormatSeconds(summary.ingress_seconds()),
                                   ", uplink ", FormatSeconds(summary.uplink_seconds()));
  if (summary.rack_ingress_seconds() > 0 || summary.rack_uplink_seconds() > 0) {
    absl::StrAppend(&terms, ", rack ingress ", FormatSeconds(summary.rack_ingress_seconds()),
                    ", rack uplink ", FormatSeconds(summary.rack_uplink_seconds()));
  }
  if (summary.together_seconds() > 0) {
    absl::StrAppend(&terms, ", together ", FormatSeconds(summary.together_seconds()));
  }
  return terms;
}

std::string ExcessText(const v1::PlanSummary& summary) {
  const std::string routing =
      summary.routing_seconds() > 0
          ? absl::StrCat(", routing ", FormatSeconds(summary.routing_seconds()))
          : "";
  return absl::StrCat(
      "rounding ", FormatSeconds(summary.rounding_seconds()), routing, ", fill ",
      FormatSeconds(summary.fill_seconds()), " (", CountText(summary.depth(), "hop", "hops"),
      " deep, ", CountText(summary.periods(), "period", "periods"), "), blocking ",
      summary.simulated() ? FormatSeconds(summary.blocking_seconds()) : "not simulated");
}

std::string BusiestHost(const v1::PlanSummary& summary) {
  if (summary.busiest_host().empty()) return "-";
  return absl::StrCat(Bytes(summary.busiest_host_bytes()), " (", summary.busiest_host(), ")");
}

}  // namespace

std::string RatioToBound(double seconds, double bound_seconds) {
  return bound_seconds > 0 ? absl::StrFormat("%.2fx", seconds / bound_seconds) : "-";
}

std::string WarningLines(const google::protobuf::RepeatedPtrField<std::string>& warnings) {
  std::string lines;
  for (const std::string& warning : warnings) absl::StrAppend(&lines, "WARNING: ", warning, "\n");
  return lines;
}

std::string BroadcastLines(const google::protobuf::RepeatedPtrField<v1::BroadcastGroup>& groups) {
  std::string lines;
  for (const v1::BroadcastGroup& group : groups) {
    const bool is_chosen = group.broadcast_seconds() < group.relay_seconds();
    absl::StrAppend(&lines,
                    ReportLine("group", group.devices(), ": ", is_chosen ? "broadcasts" : "relays",
                               ", if GPUs; ", FormatSeconds(group.relay_seconds()), " by relays, ",
                               FormatSeconds(group.broadcast_seconds()), " by broadcasts"));
  }
  return lines;
}

std::string M2nLine(const v1::M2nFigures& m2n) {
  if (!m2n.refusal().empty()) return ReportLine("NCCL M2N", "cannot: ", m2n.refusal());
  return ReportLine(
      "NCCL M2N", "predicted ", FormatSeconds(m2n.seconds()),
      m2n.not_chosen().empty() ? "" : absl::StrCat("; not chosen: ", m2n.not_chosen()));
}

std::string RatesNote(const v1::PlanSummary& summary) {
  // Where only some rates are assumed, the warnings say which.
  if (summary.warnings_size() > 0) return WarningLines(summary.warnings());
  if (!summary.assumed_rates()) return "";
  return absl::StrCat(
      "Rates are assumed: ", FormatRate(static_cast<double>(summary.assumed_bytes_per_second())),
      " per host and direction.\n");
}

std::string PlanSummaryText(const v1::PlanSummary& summary) {
  return absl::StrCat(
      ReportLine("plan", summary.id()), ReportLine("strategy", summary.strategy()),
      ReportLine("tensors", summary.tensors(), " in ",
                 CountText(summary.groups(), "group", "groups"), ", ",
                 CountText(summary.classes(), "class", "classes")),
      ReportLine("replicas", summary.replicas()),
      ReportLine("relays", summary.relays(), " with ", CountText(summary.hops(), "hop", "hops"),
                 " over ", CountText(summary.channels(), "channel", "channels"), ", at most ",
                 CountText(summary.depth(), "host", "hosts"), " deep"),
      ReportLine("destination", Bytes(summary.destination_bytes())),
      ReportLine("network", Bytes(summary.network_bytes()), ", at least ",
                 Bytes(summary.least_network_bytes()), " by any plan"),
      ReportLine("busiest host", BusiestHost(summary)),
      ReportLine("bound", FormatSeconds(summary.bound_seconds()), " (", Terms(summary), ")"),
      ReportLine("predicted", FormatSeconds(summary.predicted_seconds()), ", ",
                 RatioToBound(summary.predicted_seconds(), summary.bound_seconds()), " the bound"),
      ReportLine("excess", ExcessText(summary)),
      ReportLine("device peak", Bytes(summary.peak_device_bytes()), " (", summary.peak_device(),
                 ")"),
      ReportLine("planned in", FormatSeconds(summary.plan_seconds()),
                 summary.cached() ? " (cached)" : ""),
      summary.search().empty() ? "" : ReportLine("search", summary.search()),
      summary.over_gpus().empty() ? "" : ReportLine("over GPUs", "to ", summary.over_gpus()),
      BroadcastLines(summary.broadcast_groups()), summary.has_m2n() ? M2nLine(summary.m2n()) : "",
      RatesNote(summary));
}

std::string StrategyTable(std::span<const v1::PlanSummary> summaries) {
  TextTable table({"STRATEGY", "PREDICTED>", "BUSIEST HOST>", "NETWORK>", "BOUND>", "RATIO>"});
  for (const v1::PlanSummary& summary : summaries) {
    table.AddRow({summary.strategy(), FormatSeconds(summary.predicted_seconds()),
                  Bytes(summary.busiest_host_bytes()), Bytes(summary.network_bytes()),
                  FormatSeconds(summary.bound_seconds()),
                  RatioToBound(summary.predicted_seconds(), summary.bound_seconds())});
  }
  if (summaries.empty()) return table.ToString();
  return absl::StrCat(table.ToString(), "\n", RatesNote(summaries.front()));
}

}  // namespace crossmesh
