#include "planner/layers/inside_hosts.h"

#include "common/plan/course.h"
#include "planner/network/slowest_rates.h"

#include <algorithm>
#include <cstdint>
#include <set>

namespace crossmesh {
namespace {

class InsideSum {
 public:
  InsideSum(const Plan& plan, const Topology& topology)
      : bytes_per_second_(
            static_cast<double>(SlowestRatesOf(plan.tensors().devices(), topology).inside)) {}

  void Add(const Plan& step) {
    const TensorTable& tensors = step.tensors();
    std::vector<int64_t> received(tensors.devices().size());
    for (const Relay& relay : step.relays()) {
      for (const Hop& hop : step.hops(relay)) {
        if (tensors.host_of(hop.from) != tensors.host_of(hop.to)) continue;
        received[hop.to] += relay.end - relay.begin;
        devices_.insert(tensors.devices()[hop.to]);
      }
    }
    int64_t most = 0;
    for (const int64_t bytes : received) most = std::max(most, bytes);
    const double seconds = static_cast<double>(most) / bytes_per_second_;
    seconds_ += std::max(0.0, seconds - step.figures().predicted_seconds);
  }

  InsideHosts Finish() const {
    return {.devices = {devices_.begin(), devices_.end()}, .seconds = seconds_};
  }

 private:
  const double bytes_per_second_;
  std::set<DeviceId> devices_;
  double seconds_ = 0;
};

}  // namespace

InsideHosts MovedInsideHosts(const Plan& plan, const Topology& topology) {
  InsideSum sum(plan, topology);
  if (!plan.has_courses()) {
    sum.Add(plan);
    return sum.Finish();
  }
  for (const Course<Plan>& course : plan.courses()) {
    for (const Course<Plan>::Step& step : course.steps) sum.Add(*step.move);
  }
  return sum.Finish();
}

}  // namespace crossmesh
