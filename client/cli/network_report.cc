#include "client/cli/network_report.h"

#include "client/cli/plan_report.h"
#include "client/cli/report_text.h"
#include "common/base/format.h"
#include "common/base/table.h"

#include <algorithm>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

std::string Rate(int64_t bytes_per_second) {
  return FormatRate(static_cast<double>(bytes_per_second));
}
std::string Latency(int64_t latency_ns) {
  return FormatSeconds(static_cast<double>(latency_ns) / 1e9);
}

std::string Origin(v1::NetworkSource source) {
  switch (source) {
    case v1::NETWORK_SOURCE_FILE:
      return "from the controller's file";
    case v1::NETWORK_SOURCE_CLIENT:
      return "set by a client";
    case v1::NETWORK_SOURCE_MEASURED:
      return "measured";
    default:
      return "from somewhere that this program does not know";
  }
}

std::string HostTable(const v1::Topology& topology) {
  TextTable table({"HOST", "NIC", "OUT>", "IN>", "OUT LATENCY>", "IN LATENCY>", "LOCAL>"});
  for (const v1::Host& host : topology.hosts()) {
    const int64_t local = host.local_bytes_per_second();
    for (const v1::Nic& nic : host.nics()) {
      table.AddRow({host.name(), nic.name(), Rate(nic.out_bytes_per_second()),
                    Rate(nic.in_bytes_per_second()), Latency(nic.out_latency_ns()),
                    Latency(nic.in_latency_ns()), local == 0 ? "-" : Rate(local)});
    }
  }
  return table.ToString();
}

std::string GpuTable(const v1::Topology& topology) {
  TextTable table({"GPU", "NIC", "LINKS OUT>", "LINKS IN>", "COPIES>", "LINKS ARE", "COPIES ARE"});
  for (const v1::Host& host : topology.hosts()) {
    for (const v1::HostGpu& gpu : host.gpus()) {
      table.AddRow({absl::StrCat(host.name(), ".", gpu.device()), gpu.nic(),
                    Rate(gpu.link_out_bytes_per_second()), Rate(gpu.link_in_bytes_per_second()),
                    Rate(gpu.copy_bytes_per_second()), gpu.link_source(), gpu.copy_source()});
    }
  }
  return table.ToString();
}

// A controller tells all of them.
std::string CostTable(const v1::GpuCosts& costs) {
  TextTable table({"COST OF GPUS", "VALUE>", "SOURCE"});
  const auto add = [&table](absl::string_view name, const std::string& value,
                            const v1::GpuCost& cost) {
    table.AddRow({std::string(name), value, cost.source()});
  };
  add("a launch", Latency(costs.launch_ns().value()), costs.launch_ns());
  add("a group of calls", Latency(costs.group_ns().value()), costs.group_ns());
  add("a message", Latency(costs.message_ns().value()), costs.message_ns());
  add("a channel", Rate(costs.channel_bytes_per_second().value()),
      costs.channel_bytes_per_second());
  return table.ToString();
}

bool HasGpus(const v1::Topology& topology) {
  return std::ranges::any_of(topology.hosts(),
                             [](const v1::Host& host) { return host.gpus_size() > 0; });
}

std::string RackTable(const v1::Topology& topology) {
  TextTable table({"RACK", "UP>", "DOWN>", "HOSTS"});
  for (const v1::Rack& rack : topology.racks()) {
    table.AddRow({rack.name(), Rate(rack.up_bytes_per_second()), Rate(rack.down_bytes_per_second()),
                  absl::StrJoin(rack.hosts(), ",")});
  }
  return table.ToString();
}

// Rows of what was and what is now.
class CalibrationTable {
 public:
  using Text = std::string (*)(int64_t value);
  struct Entry {
    int64_t value = 0;
    std::string source;
  };

  void Add(const std::string& what, Text text, const Entry& before, const Entry& now) {
    table_.AddRow({what, text(before.value), before.source, text(now.value), now.source});
  }
  void Add(const std::string& what, Text text, const v1::GpuCost& before, const v1::GpuCost& now) {
    Add(what, text, Entry{before.value(), before.source()}, Entry{now.value(), now.source()});
  }
  std::string ToString() const { return table_.ToString(); }

 private:
  TextTable table_{{"OF GPUS", "BEFORE>", "SOURCE", "NOW>", "SOURCE"}};
};

void AddGpus(const v1::Host& before, const v1::Host& now, CalibrationTable& table) {
  for (int i = 0; i < std::min(before.gpus_size(), now.gpus_size()); ++i) {
    const v1::HostGpu& was = before.gpus(i);
    const v1::HostGpu& is = now.gpus(i);
    const std::string gpu = absl::StrCat(now.name(), ".", is.device());
    table.Add(gpu + " copies", Rate, {was.copy_bytes_per_second(), was.copy_source()},
              {is.copy_bytes_per_second(), is.copy_source()});
    table.Add(gpu + " links", Rate, {was.link_out_bytes_per_second(), was.link_source()},
              {is.link_out_bytes_per_second(), is.link_source()});
  }
}

}  // namespace

std::string NetworkText(const v1::Network& network) {
  const v1::Topology& topology = network.topology();
  std::string text =
      network.revision() == 0
          ? "the network is not described\n"
          : absl::StrCat("network revision ", network.revision(), ", ", Origin(network.source()),
                         ", ", UtcText(network.update_time()), " UTC\n");
  if (topology.hosts_size() > 0) absl::StrAppend(&text, "\n", HostTable(topology));
  if (HasGpus(topology)) {
    absl::StrAppend(&text, "\n", GpuTable(topology), "\n", CostTable(topology.gpu_costs()));
  }
  if (topology.racks_size() > 0) absl::StrAppend(&text, "\n", RackTable(topology));
  return absl::StrCat(text,
                      "\nHosts that are not named: ", Rate(topology.assumed_bytes_per_second()),
                      " per direction, assumed.\n");
}

std::string CalibrationText(const v1::CalibrateGpusResponse& response) {
  const v1::Topology& before = response.before().topology();
  const v1::Topology& now = response.network().topology();
  const v1::GpuCosts& was = before.gpu_costs();
  const v1::GpuCosts& is = now.gpu_costs();
  CalibrationTable table;
  table.Add("a launch", Latency, was.launch_ns(), is.launch_ns());
  table.Add("a group of calls", Latency, was.group_ns(), is.group_ns());
  table.Add("a message", Latency, was.message_ns(), is.message_ns());
  table.Add("a channel", Rate, was.channel_bytes_per_second(), is.channel_bytes_per_second());
  // A calibration leaves hosts and their order as they are.
  for (int i = 0; i < std::min(before.hosts_size(), now.hosts_size()); ++i) {
    AddGpus(before.hosts(i), now.hosts(i), table);
  }
  const int64_t revision = response.network().revision();
  return absl::StrCat(table.ToString(), "\n", WarningLines(response.warnings()),
                      response.warnings_size() > 0 ? "\n" : "",
                      revision == response.before().revision()
                          ? "the network's description stays as it was\n"
                          : absl::StrCat("network revision ", revision, "\n"));
}

std::string MeasurementText(const v1::MeasureNetworkResponse::Result& result) {
  TextTable table({"FROM", "TO", "RATE>", "LATENCY>", "RECEIVED>"});
  for (const v1::MeasureNetworkResponse::Link& link : result.links()) {
    table.AddRow({link.from(), link.to(), Rate(link.bytes_per_second()), Latency(link.latency_ns()),
                  Bytes(link.received_bytes())});
  }
  return absl::StrCat(table.ToString(), "\n", WarningLines(result.warnings()),
                      result.warnings_size() > 0 ? "\n" : "", NetworkText(result.network()));
}

}  // namespace crossmesh
