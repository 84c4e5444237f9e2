#include "planner/network/slowest_rates.h"

#include "common/mesh/gpu_costs.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace crossmesh {
namespace {

// Of host memory; nothing of these was measured yet: a step has every device wake up and say that
// it is there, a message is announced and asked for, and memory is read and written.
constexpr double kHostStepSeconds = 50e-6;
constexpr double kHostMessageSeconds = 10e-6;
constexpr int64_t kHostCopyBytesPerSecond = 10'000'000'000;

class RateSearch {
 public:
  RateSearch(std::span<const DeviceId> devices, const Topology& topology) : topology_(topology) {
    for (const DeviceId& device : devices) ++sharing_[SharedNic(device)];
    for (const DeviceId& device : devices) Add(device);
    const GpuCosts& costs = topology.gpu_costs();
    slowest_.step_seconds = all_gpus_ ? costs.step_seconds() : kHostStepSeconds;
    slowest_.message_seconds = all_gpus_ ? costs.message_seconds() : kHostMessageSeconds;
  }

  const SlowestRates& slowest() const { return slowest_; }

 private:
  // Host, and NIC of a GPU; host memory may use any.
  std::pair<std::string, std::string> SharedNic(const DeviceId& device) const {
    const HostGpu* const gpu = topology_.FindGpu(device);
    return {device.host, gpu == nullptr ? "" : gpu->nic};
  }

  void Add(const DeviceId& device) {
    const int64_t sharing = sharing_.at(SharedNic(device));
    const HostGpu* const gpu = topology_.FindGpu(device);
    const Host* const host = topology_.FindHost(device.host);
    int64_t out = topology_.RateOut(device.host);
    int64_t in = topology_.RateIn(device.host);
    int64_t inside = kHostCopyBytesPerSecond;
    if (gpu != nullptr) {
      const Nic& own = *std::ranges::find(host->nics, gpu->nic, &Nic::name);
      out = own.out_bytes_per_second;
      in = own.in_bytes_per_second;
      inside = std::min(gpu->link_out_bytes_per_second, gpu->link_in_bytes_per_second);
    } else {
      all_gpus_ = false;
      if (host != nullptr && host->local_bytes_per_second > 0) {
        inside = host->local_bytes_per_second / sharing;
      }
    }
    slowest_.nic = std::min(slowest_.nic, std::max<int64_t>(1, std::min(out, in) / sharing));
    slowest_.inside = std::min(slowest_.inside, std::max<int64_t>(1, inside));
    if (host == nullptr) return;
    for (const Nic& any : host->nics) {
      slowest_.latency_seconds =
          std::max(slowest_.latency_seconds,
                   static_cast<double>(any.out_latency_ns + any.in_latency_ns) * 1e-9);
    }
  }

  const Topology& topology_;
  std::map<std::pair<std::string, std::string>, int64_t> sharing_;
  bool all_gpus_ = true;
  SlowestRates slowest_;
};

}  // namespace

SlowestRates SlowestRatesOf(std::span<const DeviceId> devices, const Topology& topology) {
  return RateSearch(devices, topology).slowest();
}

}  // namespace crossmesh
