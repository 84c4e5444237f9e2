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

constexpr std::array<absl::string_view, 3> kFileKeys = {"hosts", "racks",
                                                        "assumed_bytes_per_second"};
constexpr std::array<absl::string_view, 2> kHostKeys = {"name", "nics"};
constexpr std::array<absl::string_view, 3> kNicKeys = {"name", "out_bytes_per_second",
                                                       "in_bytes_per_second"};
constexpr std::array<absl::string_view, 4> kRackKeys = {"name", "hosts", "up_bytes_per_second",
                                                        "down_bytes_per_second"};

absl::StatusOr<Nic> ReadNic(const json& value, std::string where) {
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, std::move(where), kNicKeys));
  Nic nic;
  ASSIGN_OR_RETURN(nic.name, fields.String("name"));
  ASSIGN_OR_RETURN(nic.out_bytes_per_second, fields.Integer("out_bytes_per_second"));
  ASSIGN_OR_RETURN(nic.in_bytes_per_second, fields.Integer("in_bytes_per_second"));
  return nic;
}

absl::StatusOr<Host> ReadHost(const json& value, std::string where) {
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(value, std::move(where), kHostKeys));
  Host host;
  ASSIGN_OR_RETURN(host.name, fields.String("name"));
  ASSIGN_OR_RETURN(const json* nics, fields.Array("nics"));
  for (const json& item : *nics) {
    ASSIGN_OR_RETURN(Nic nic,
                     ReadNic(item, absl::StrCat(fields.where(), ".nics[", host.nics.size(), "]")));
    host.nics.push_back(std::move(nic));
  }
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

}  // namespace

absl::StatusOr<Topology> ParseTopologyFile(absl::string_view text) {
  ASSIGN_OR_RETURN(const json document, ParseJson("network file", text));
  ASSIGN_OR_RETURN(const JsonFields fields, JsonFields::Of(document, "network file", kFileKeys));
  std::vector<Host> hosts;
  if (fields.Has("hosts")) {
    ASSIGN_OR_RETURN(const json* items, fields.Array("hosts"));
    for (const json& item : *items) {
      ASSIGN_OR_RETURN(Host host,
                       ReadHost(item, absl::StrCat("network file hosts[", hosts.size(), "]")));
      hosts.push_back(std::move(host));
    }
  }
  std::vector<Rack> racks;
  if (fields.Has("racks")) {
    ASSIGN_OR_RETURN(const json* items, fields.Array("racks"));
    for (const json& item : *items) {
      ASSIGN_OR_RETURN(Rack rack,
                       ReadRack(item, absl::StrCat("network file racks[", racks.size(), "]")));
      racks.push_back(std::move(rack));
    }
  }
  int64_t assumed = Topology::kAssumedBytesPerSecond;
  if (fields.Has("assumed_bytes_per_second")) {
    ASSIGN_OR_RETURN(assumed, fields.Integer("assumed_bytes_per_second"));
  }
  return Topology::Create(std::move(hosts), std::move(racks), assumed);
}

}  // namespace crossmesh
