#include "common/mesh/topology_file.h"

#include "common/base/status_macros.h"
#include "common/mesh/json_reader.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::array<absl::string_view, 4> kNetworkFileKeys = {
    "hosts", "racks", "assumed_bytes_per_second", "gpu_costs"};
constexpr std::array<absl::string_view, 2> kCostKeys = {"value", "source"};
constexpr std::array<absl::string_view, 4> kHostKeys = {"name", "nics", "gpus",
                                                        "local_bytes_per_second"};
constexpr std::array<absl::string_view, 7> kGpuKeys = {"device",
                                                       "nic",
                                                       "link_out_bytes_per_second",
                                                       "link_in_bytes_per_second",
                                                       "copy_bytes_per_second",
                                                       "link_source",
                                                       "copy_source"};
constexpr std::array<absl::string_view, 5> kNicKeys = {
    "name", "out_bytes_per_second", "in_bytes_per_second", "out_latency_ns", "in_latency_ns"};
constexpr std::array<absl::string_view, 4> kRackKeys = {"name", "hosts", "up_bytes_per_second",
                                                        "down_bytes_per_second"};

absl::StatusOr<int64_t> IntegerOr(const JsonFields& fields, absl::string_view key,
                                  int64_t where_missing) {
  if (!fields.Has(key)) return where_missing;
  return fields.Integer(key);
}

absl::StatusOr<std::string> SourceOf(const JsonFields& fields, absl::string_view key) {
  if (!fields.Has(key)) return std::string(kAssumed);
  return fields.String(key);
}

absl::StatusOr<GpuCost> ReadCost(const json& value, std::string where) {
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, std::move(where), kCostKeys));
  GpuCost cost;
  ASSIGN_OR_RETURN(cost.value, fields.Integer("value"));
  ASSIGN_OR_RETURN(cost.source, SourceOf(fields, "source"));
  return cost;
}

absl::StatusOr<GpuCosts> ReadCosts(const json& value, const std::string& where) {
  std::vector<absl::string_view> keys;
  for (const GpuCostField& field : kGpuCostFields) keys.push_back(field.name);
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, where, keys));
  GpuCosts costs;
  for (const GpuCostField& field : kGpuCostFields) {
    if (!fields.Has(field.name)) continue;
    ASSIGN_OR_RETURN(costs.*field.cost, ReadCost(value.at(std::string(field.name)),
                                                 absl::StrCat(where, ".", field.name)));
  }
  return costs;
}

// What `read` makes of each item of the array under `key`; `where` names the array in errors.
template <typename T>
absl::StatusOr<std::vector<T>> ReadAll(const JsonFields& fields, absl::string_view key,
                                       absl::string_view where,
                                       absl::StatusOr<T> (*read)(const json&, std::string)) {
  ASSIGN_OR_RETURN(const json* items, fields.Array(key));
  std::vector<T> list;
  for (const json& item : *items) {
    ASSIGN_OR_RETURN(list.emplace_back(), read(item, absl::StrCat(where, "[", list.size(), "]")));
  }
  return list;
}

absl::StatusOr<Nic> ReadNic(const json& value, std::string where) {
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, std::move(where), kNicKeys));
  Nic nic;
  ASSIGN_OR_RETURN(nic.name, fields.String("name"));
  ASSIGN_OR_RETURN(nic.out_bytes_per_second, fields.Integer("out_bytes_per_second"));
  ASSIGN_OR_RETURN(nic.in_bytes_per_second, fields.Integer("in_bytes_per_second"));
  ASSIGN_OR_RETURN(nic.out_latency_ns, IntegerOr(fields, "out_latency_ns", 0));
  ASSIGN_OR_RETURN(nic.in_latency_ns, IntegerOr(fields, "in_latency_ns", 0));
  return nic;
}

absl::StatusOr<HostGpu> ReadGpu(const json& value, std::string where) {
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, std::move(where), kGpuKeys));
  HostGpu gpu;
  ASSIGN_OR_RETURN(const int64_t device, fields.Integer("device"));
  if (device < 0 || device >= kDevicesPerHostMax) {
    return absl::InvalidArgumentError(absl::StrCat(fields.where(), ": expected \"device\" of 0 to ",
                                                   kDevicesPerHostMax - 1, ", found ", device));
  }
  gpu.device = static_cast<int32_t>(device);
  ASSIGN_OR_RETURN(gpu.nic, fields.String("nic"));
  ASSIGN_OR_RETURN(gpu.link_out_bytes_per_second, fields.Integer("link_out_bytes_per_second"));
  ASSIGN_OR_RETURN(gpu.link_in_bytes_per_second, fields.Integer("link_in_bytes_per_second"));
  ASSIGN_OR_RETURN(gpu.copy_bytes_per_second, fields.Integer("copy_bytes_per_second"));
  ASSIGN_OR_RETURN(gpu.link_source, SourceOf(fields, "link_source"));
  ASSIGN_OR_RETURN(gpu.copy_source, SourceOf(fields, "copy_source"));
  return gpu;
}

absl::StatusOr<Host> ReadHost(const json& value, std::string where) {
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, std::move(where), kHostKeys));
  Host host;
  ASSIGN_OR_RETURN(host.name, fields.String("name"));
  ASSIGN_OR_RETURN(host.nics,
                   ReadAll(fields, "nics", absl::StrCat(fields.where(), ".nics"), ReadNic));
  if (fields.Has("gpus")) {
    ASSIGN_OR_RETURN(host.gpus,
                     ReadAll(fields, "gpus", absl::StrCat(fields.where(), ".gpus"), ReadGpu));
  }
  ASSIGN_OR_RETURN(host.local_bytes_per_second, IntegerOr(fields, "local_bytes_per_second", 0));
  return host;
}

absl::StatusOr<Rack> ReadRack(const json& value, std::string where) {
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, std::move(where), kRackKeys));
  Rack rack;
  ASSIGN_OR_RETURN(rack.name, fields.String("name"));
  ASSIGN_OR_RETURN(rack.hosts, fields.Strings("hosts"));
  ASSIGN_OR_RETURN(rack.up_bytes_per_second, fields.Integer("up_bytes_per_second"));
  ASSIGN_OR_RETURN(rack.down_bytes_per_second, fields.Integer("down_bytes_per_second"));
  return rack;
}

ordered_json ToJson(const Nic& nic) {
  return {{"name", nic.name},
          {"out_bytes_per_second", nic.out_bytes_per_second},
          {"in_bytes_per_second", nic.in_bytes_per_second},
          {"out_latency_ns", nic.out_latency_ns},
          {"in_latency_ns", nic.in_latency_ns}};
}

ordered_json ToJson(const HostGpu& gpu) {
  return {{"device", gpu.device},
          {"nic", gpu.nic},
          {"link_out_bytes_per_second", gpu.link_out_bytes_per_second},
          {"link_in_bytes_per_second", gpu.link_in_bytes_per_second},
          {"copy_bytes_per_second", gpu.copy_bytes_per_second},
          {"link_source", gpu.link_source},
          {"copy_source", gpu.copy_source}};
}

ordered_json ToJson(const GpuCosts& costs) {
  ordered_json document = ordered_json::object();
  for (const GpuCostField& field : kGpuCostFields) {
    const GpuCost& cost = costs.*field.cost;
    document[std::string(field.name)] = {{"value", cost.value}, {"source", cost.source}};
  }
  return document;
}

ordered_json ToJson(const Host& host) {
  ordered_json nics = ordered_json::array();
  for (const Nic& nic : host.nics) nics.push_back(ToJson(nic));
  ordered_json document = {{"name", host.name}, {"nics", std::move(nics)}};
  if (!host.gpus.empty()) {
    ordered_json gpus = ordered_json::array();
    for (const HostGpu& gpu : host.gpus) gpus.push_back(ToJson(gpu));
    document["gpus"] = std::move(gpus);
  }
  document["local_bytes_per_second"] = host.local_bytes_per_second;
  return document;
}

ordered_json ToJson(const Rack& rack) {
  return {{"name", rack.name},
          {"hosts", rack.hosts},
          {"up_bytes_per_second", rack.up_bytes_per_second},
          {"down_bytes_per_second", rack.down_bytes_per_second}};
}

}  // namespace

absl::StatusOr<Topology> ParseTopologyFile(absl::string_view text) {
  ASSIGN_OR_RETURN(const json document, ParseJson("network file", text));
  ASSIGN_OR_RETURN(const JsonFields fields,
                   JsonFields::Of(document, "network file", kNetworkFileKeys));
  std::vector<Host> hosts;
  if (fields.Has("hosts")) {
    ASSIGN_OR_RETURN(hosts, ReadAll(fields, "hosts", "network file hosts", ReadHost));
  }
  std::vector<Rack> racks;
  if (fields.Has("racks")) {
    ASSIGN_OR_RETURN(racks, ReadAll(fields, "racks", "network file racks", ReadRack));
  }
  ASSIGN_OR_RETURN(const int64_t assumed,
                   IntegerOr(fields, "assumed_bytes_per_second", Topology::kAssumedBytesPerSecond));
  GpuCosts costs;
  if (fields.Has("gpu_costs")) {
    ASSIGN_OR_RETURN(costs, ReadCosts(document.at("gpu_costs"), "network file gpu_costs"));
  }
  return Topology::Create(std::move(hosts), std::move(racks), assumed, std::move(costs));
}

std::string ToTopologyFile(const Topology& topology) {
  ordered_json hosts = ordered_json::array();
  for (const Host& host : topology.hosts()) hosts.push_back(ToJson(host));
  ordered_json racks = ordered_json::array();
  for (const Rack& rack : topology.racks()) racks.push_back(ToJson(rack));
  const ordered_json document = {{"hosts", std::move(hosts)},
                                 {"racks", std::move(racks)},
                                 {"assumed_bytes_per_second", topology.assumed_bytes_per_second()},
                                 {"gpu_costs", ToJson(topology.gpu_costs())}};
  // Names of NICs and racks may be any bytes.
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace crossmesh
