#include "client/cli/plan_report.h"

#include "common/base/byte_count.h"
#include "common/base/format.h"
#include "common/base/table.h"

#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

std::string Bytes(int64_t bytes) { return FormatBytes(ByteCount(bytes)); }

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
      FormatSeconds(summary.fill_seconds()), " (", summary.depth(), " hops deep, ",
      summary.periods(), " periods), blocking ",
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
    absl::StrAppendFormat(&lines, "%-13s %s: %s, if GPUs; %s by relays, %s by broadcasts\n",
                          "group", group.devices(), is_chosen ? "broadcasts" : "relays",
                          FormatSeconds(group.relay_seconds()),
                          FormatSeconds(group.broadcast_seconds()));
  }
  return lines;
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
  const std::vector<std::pair<std::string, std::string>> lines = {
      {"plan", summary.id()},
      {"strategy", summary.strategy()},
      {"tensors", absl::StrCat(summary.tensors(), " in ", summary.groups(), " groups, ",
                               summary.classes(), " classes")},
      {"replicas", absl::StrCat(summary.replicas())},
      {"relays",
       absl::StrCat(summary.relays(), " with ", summary.hops(), " hops over ", summary.channels(),
                    " channels, at most ", summary.depth(), " hosts deep")},
      {"destination", Bytes(summary.destination_bytes())},
      {"network", absl::StrCat(Bytes(summary.network_bytes()), ", at least ",
                               Bytes(summary.least_network_bytes()), " by any plan")},
      {"busiest host", BusiestHost(summary)},
      {"bound", absl::StrCat(FormatSeconds(summary.bound_seconds()), " (", Terms(summary), ")")},
      {"predicted", absl::StrCat(FormatSeconds(summary.predicted_seconds()), ", ",
                                 RatioToBound(summary.predicted_seconds(), summary.bound_seconds()),
                                 " the bound")},
      {"excess", ExcessText(summary)},
      {"device peak",
       absl::StrCat(Bytes(summary.peak_device_bytes()), " (", summary.peak_device(), ")")},
      {"planned in",
       absl::StrCat(FormatSeconds(summary.plan_seconds()), summary.cached() ? " (cached)" : "")},
  };
  std::string text;
  for (const auto& [name, value] : lines) absl::StrAppendFormat(&text, "%-13s %s\n", name, value);
  if (!summary.search().empty())
    absl::StrAppendFormat(&text, "%-13s %s\n", "search", summary.search());
  return absl::StrCat(text, BroadcastLines(summary.broadcast_groups()), RatesNote(summary));
}

std::string StrategyTable(std::span<const v1::PlanSummary> summaries) {
  using Align = TextTable::Align;
  TextTable table({{"STRATEGY"},
                   {"PREDICTED", Align::kRight},
                   {"BUSIEST HOST", Align::kRight},
                   {"NETWORK", Align::kRight},
                   {"BOUND", Align::kRight},
                   {"RATIO", Align::kRight}});
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
