#include "client/cli/simulation_report.h"

#include "client/cli/plan_report.h"
#include "client/cli/report_text.h"
#include "common/base/format.h"
#include "common/base/table.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_split.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

// Chunks of one hop that follow one another in the critical chain.
struct ChainStep {
  const SimulatedTransfer* first = nullptr;
  const SimulatedTransfer* last = nullptr;
};

std::vector<ChainStep> CriticalSteps(const SimulatedTimeline& run) {
  std::vector<ChainStep> steps;
  for (const int64_t number : run.CriticalChain()) {
    const SimulatedTransfer& transfer = run.transfers[number];
    if (steps.empty() || steps.back().first->hop != transfer.hop) steps.push_back({&transfer});
    steps.back().last = &transfer;
  }
  return steps;
}

std::string HopText(const Plan& plan, const SimulatedTransfer& transfer) {
  const Hop& hop = plan.hops()[transfer.hop];
  return absl::StrCat(ToString(plan.tensors().devices()[hop.from]), " > ",
                      ToString(plan.tensors().devices()[hop.to]));
}

double UseOf(const SimulatedTimeline& run, int64_t port) {
  const double seconds = run.port_bytes[port] / run.ports[port].bytes_per_second;
  return run.seconds > 0 ? seconds / run.seconds : 0;
}

// Those that carried something, the busiest first.
std::vector<int64_t> PortsByUse(const SimulatedTimeline& run) {
  std::vector<int64_t> ports(run.ports.size());
  std::iota(ports.begin(), ports.end(), 0);
  std::erase_if(ports, [&run](int64_t port) { return run.port_bytes[port] == 0; });
  std::ranges::stable_sort(ports, std::ranges::greater(),
                           [&run](int64_t port) { return UseOf(run, port); });
  return ports;
}

std::string PortTable(const SimulatedTimeline& run, int64_t ports_max) {
  TextTable table({"PORT", "KIND", "RATE>", "BYTES>", "BUSY>"});
  const std::vector<int64_t> ports = PortsByUse(run);
  const auto shown = std::min<int64_t>(ports_max, std::ssize(ports));
  for (int64_t i = 0; i < shown; ++i) {
    const NetworkPort& port = run.ports[ports[i]];
    const auto bytes = std::llround(run.port_bytes[ports[i]]);
    table.AddRow({port.name, std::string(PortName(port.kind)), FormatRate(port.bytes_per_second),
                  Bytes(bytes), absl::StrFormat("%.1f %%", 100 * UseOf(run, ports[i]))});
  }
  std::string text = table.ToString();
  if (shown < std::ssize(ports)) {
    absl::StrAppend(&text, "... and ", std::ssize(ports) - shown, " more, less busy\n");
  }
  return text;
}

std::string ChainTable(const Plan& plan, const SimulatedTimeline& run) {
  TextTable table({"CRITICAL CHAIN", "RELAY>", "CHUNKS>", "FROM>", "TO>"});
  for (const auto& [first, last] : CriticalSteps(run)) {
    table.AddRow(
        {HopText(plan, *first), absl::StrCat(first->relay),
         first == last ? absl::StrCat(first->chunk) : absl::StrCat(first->chunk, "-", last->chunk),
         FormatSeconds(first->begin_seconds), FormatSeconds(last->arrival_seconds)});
  }
  return table.ToString();
}

}  // namespace

std::string SimulationText(const Plan& plan, const SimulatedTimeline& run, int64_t ports_max) {
  const double bound = plan.figures().bound.seconds;
  std::string text =
      absl::StrCat(ReportLine("strategy", plan.figures().strategy),
                   ReportLine("simulated", FormatSeconds(run.seconds), ", ",
                              RatioToBound(run.seconds, bound), " the bound"),
                   ReportLine("bound", FormatSeconds(bound)),
                   ReportLine("predicted", FormatSeconds(plan.figures().predicted_seconds)));
  if (run.transfers.empty()) return text;
  return absl::StrCat(text, "\n", PortTable(run, ports_max), "\n", ChainTable(plan, run));
}

nlohmann::json SimulationDocument(const Plan& plan, const SimulatedTimeline& run) {
  nlohmann::json ports = nlohmann::json::array();
  for (const int64_t port : PortsByUse(run)) {
    ports.push_back({{"name", run.ports[port].name},
                     {"kind", PortName(run.ports[port].kind)},
                     {"bytes_per_second", run.ports[port].bytes_per_second},
                     {"bytes", run.port_bytes[port]},
                     {"busy", UseOf(run, port)}});
  }
  nlohmann::json chain = nlohmann::json::array();
  for (const auto& [first, last] : CriticalSteps(run)) {
    chain.push_back({{"hop", HopText(plan, *first)},
                     {"relay", first->relay},
                     {"first_chunk", first->chunk},
                     {"last_chunk", last->chunk},
                     {"begin_seconds", first->begin_seconds},
                     {"end_seconds", last->end_seconds},
                     {"arrival_seconds", last->arrival_seconds}});
  }
  return {{"strategy", plan.figures().strategy},
          {"seconds", run.seconds},
          {"bound_seconds", plan.figures().bound.seconds},
          {"predicted_seconds", plan.figures().predicted_seconds},
          {"ports", std::move(ports)},
          {"critical_chain", std::move(chain)}};
}

nlohmann::json SimulationTrace(const Plan& plan, const SimulatedTimeline& run) {
  nlohmann::json events = nlohmann::json::array();
  const TensorTable& tensors = plan.tensors();
  for (size_t host = 0; host < tensors.hosts().size(); ++host) {
    events.push_back({{"ph", "M"},
                      {"name", "process_name"},
                      {"pid", host},
                      {"args", {{"name", tensors.hosts()[host]}}}});
  }
  // A receiver has the bytes later by what they are on their way.
  const auto add = [&](const SimulatedTransfer& transfer, HostRank host, int32_t port) {
    constexpr double kMicroseconds = 1e6;
    const double delay =
        port == transfer.in_port ? transfer.arrival_seconds - transfer.end_seconds : 0;
    events.push_back({{"ph", "X"},
                      {"name", absl::StrCat("relay ", transfer.relay, " chunk ", transfer.chunk)},
                      {"cat", HopText(plan, transfer)},
                      {"pid", host},
                      {"tid", port},
                      {"ts", (transfer.begin_seconds + delay) * kMicroseconds},
                      {"dur", (transfer.end_seconds - transfer.begin_seconds) * kMicroseconds}});
  };
  // Only ports that carry something get a row: viewers would show all others as empty ones.
  std::vector<bool> named(run.ports.size(), false);
  const auto name = [&](HostRank host, int32_t port) {
    if (named[port]) return;
    named[port] = true;
    const std::vector<std::string> parts = absl::StrSplit(run.ports[port].name, '/');
    events.push_back(
        {{"ph", "M"},
         {"name", "thread_name"},
         {"pid", host},
         {"tid", port},
         {"args",
          {{"name",
            absl::StrCat(parts.back(),
                         run.ports[port].kind == PortPrice::Port::kHostOut ? " out" : " in")}}}});
  };
  for (const SimulatedTransfer& transfer : run.transfers) {
    const Hop& hop = plan.hops()[transfer.hop];
    const HostRank from = tensors.host_of(hop.from), to = tensors.host_of(hop.to);
    name(from, transfer.out_port);
    name(to, transfer.in_port);
    add(transfer, from, transfer.out_port);
    add(transfer, to, transfer.in_port);
  }
  return {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
}

}  // namespace crossmesh
