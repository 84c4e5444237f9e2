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
  TextTable table({"GPU", "NIC", "LINKS OUT>", "LINKS IN>", "COPIES>"});
  for (const v1::Host& host : topology.hosts()) {
    for (const v1::HostGpu& gpu : host.gpus()) {
      table.AddRow({absl::StrCat(host.name(), ".", gpu.device()), gpu.nic(),
                    Rate(gpu.link_out_bytes_per_second()), Rate(gpu.link_in_bytes_per_second()),
                    Rate(gpu.copy_bytes_per_second())});
    }
  }
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

}  // namespace

std::string NetworkText(const v1::Network& network) {
  const v1::Topology& topology = network.topology();
  std::string text =
      network.revision() == 0
          ? "the network is not described\n"
          : absl::StrCat("network revision ", network.revision(), ", ", Origin(network.source()),
                         ", ", UtcText(network.update_time()), " UTC\n");
  if (topology.hosts_size() > 0) absl::StrAppend(&text, "\n", HostTable(topology));
  if (HasGpus(topology)) absl::StrAppend(&text, "\n", GpuTable(topology));
  if (topology.racks_size() > 0) absl::StrAppend(&text, "\n", RackTable(topology));
  return absl::StrCat(text,
                      "\nHosts that are not named: ", Rate(topology.assumed_bytes_per_second()),
                      " per direction, assumed.\n");
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
