#include "planner/pipeline/planning/plan_ports.h"

#include "common/plan/course.h"
#include "planner/network/host_network.h"
#include "planner/network/port_load.h"
#include "planner/network/routing.h"

#include <algorithm>
#include <cstddef>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// All ports of a kind in one direction.
struct PortsOfKind {
  absl::string_view kind;
  absl::string_view direction;
  const std::vector<std::string>& names;
  const std::vector<int64_t>& bytes;
};

void AddPorts(const PortsOfKind& of, std::vector<PortBytes>& ports) {
  for (size_t i = 0; i < of.bytes.size(); ++i) {
    // A host in no rack is one without a name, whose uplink is no limit.
    if (of.bytes[i] == 0 || of.names[i].empty()) continue;
    ports.push_back({absl::StrCat(of.kind, " ", of.names[i], " ", of.direction), of.bytes[i]});
  }
}

std::vector<PortBytes> PortsOfCourses(const Plan& plan, const Topology& topology) {
  std::vector<PortBytes> ports;
  for (const Course<Plan>& course : plan.courses()) {
    for (const Course<Plan>::Step& step : course.steps) {
      for (const PortBytes& of_step : PortsOf(*step.move, topology)) {
        const auto known = std::ranges::find(ports, of_step.port, &PortBytes::port);
        PortBytes& port = known != ports.end() ? *known : ports.emplace_back(of_step.port);
        port.bytes += course.instances * of_step.bytes;
      }
    }
  }
  return ports;
}

}  // namespace

std::vector<PortBytes> PortsOf(const Plan& plan, const Topology& topology) {
  if (plan.has_courses()) return PortsOfCourses(plan, topology);
  const HostNetwork network = HostNetworkOf(plan.tensors(), topology);
  Routes routes;
  routes.relays = plan.relays();
  routes.hops = plan.hops();
  const PortLoad load = ComputePortLoad(plan.tensors(), network, routes);
  std::vector<PortBytes> ports;
  AddPorts({"host", "out", network.hosts, load.host_out}, ports);
  AddPorts({"host", "in", network.hosts, load.host_in}, ports);
  AddPorts({"rack", "up", network.racks, load.rack_up}, ports);
  AddPorts({"rack", "down", network.racks, load.rack_down}, ports);
  return ports;
}

}  // namespace crossmesh
