#include "planner/redistribute/planning/course_prediction.h"

#include "common/base/check.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace crossmesh {
namespace {

// By the ranks of a step's table, those of the whole one's hosts.
std::vector<HostRank> HostsIn(const TensorTable& whole, const TensorTable& step) {
  std::vector<HostRank> hosts;
  hosts.reserve(step.devices().size());
  for (const DeviceId& device : step.devices()) {
    const std::optional<DeviceRank> rank = whole.FindDevice(device);
    CHECK(rank.has_value()) << "device " << ToString(device) << " of a step is none of the plan";
    hosts.push_back(whole.host_of(*rank));
  }
  return hosts;
}

// What one execution of a step puts on the ports.
void AddStep(const TensorTable& whole, const Plan& step, const HostNetwork& network,
             PortLoad& load) {
  const std::vector<HostRank> hosts = HostsIn(whole, step.tensors());
  for (const Relay& relay : step.relays()) {
    for (const Hop& hop : step.hops(relay)) {
      const HostRank from = hosts[hop.from];
      const HostRank to = hosts[hop.to];
      if (from != to) load.Add(network, from, to, relay.end - relay.begin);
    }
  }
}

void AddTimes(int64_t times, const PortLoad& one, PortLoad& sum) {
  for (const auto bytes :
       {&PortLoad::host_out, &PortLoad::host_in, &PortLoad::rack_up, &PortLoad::rack_down}) {
    for (size_t port = 0; port < (one.*bytes).size(); ++port) {
      (sum.*bytes)[port] += times * (one.*bytes)[port];
    }
  }
  sum.network_bytes += times * one.network_bytes;
}

}  // namespace

CoursePrediction PredictCourses(const TensorTable& whole, std::span<const Course<Plan>> courses,
                                const HostNetwork& network) {
  CoursePrediction prediction{.load = PortLoad(network)};
  for (const Course<Plan>& course : courses) {
    PortLoad of_instance(network);
    for (const Course<Plan>::Step& step : course.steps) {
      const PlanFigures& figures = step.move->figures();
      prediction.seconds += figures.predicted_seconds;
      prediction.load.depth = std::max(prediction.load.depth, figures.depth);
      AddStep(whole, *step.move, network, of_instance);
    }
    AddTimes(course.instances, of_instance, prediction.load);
    prediction.seconds += (course.instances - 1) * FindBusiestPort(of_instance, network).seconds;
  }
  return prediction;
}

}  // namespace crossmesh
