#include "planner/network/gpu_network.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace crossmesh {
namespace {

const Nic& NicOf(const Host& host, const HostGpu& gpu) {
  // Topology::Create has checked that it is there.
  return *std::ranges::find(host.nics, gpu.nic, &Nic::name);
}

class GpuNetworkMaker {
 public:
  GpuNetworkMaker(const TensorTable& tensors, const Topology& topology)
      : tensors_(tensors), topology_(topology) {}

  // False: some device is none.
  bool FindGpus(bool all) {
    for (const DeviceId& device : tensors_.devices()) {
      const HostGpu* const gpu = topology_.FindGpu(device);
      if (gpu == nullptr && all) return false;
      gpus_.push_back(gpu);
      if (gpu != nullptr) ++gpus_of_nic_[{device.host, gpu->nic}];
    }
    return true;
  }

  GpuNetwork Make() && {
    AddHosts();
    for (size_t d = 0; d < gpus_.size(); ++d) AddDevice(static_cast<DeviceRank>(d));
    DropLatenciesIfNone(network_.nics);
    network_.costs = topology_.gpu_costs();
    network_.nics.racks = network_.hosts.racks;
    network_.nics.rack_rates = network_.hosts.rack_rates;
    return std::move(network_);
  }

 private:
  // Starts from the network of all NICs, whose names, racks and latencies are the same.
  void AddHosts() {
    network_.hosts = HostNetworkOf(tensors_, topology_);
    network_.hosts.host_rates = {
        .out = std::vector<int64_t>(tensors_.hosts().size()),
        .in = std::vector<int64_t>(tensors_.hosts().size()),
    };
    for (const auto& [name, gpus] : gpus_of_nic_) {
      network_.shares_nics |= gpus > 1;
      const auto host = static_cast<HostRank>(
          std::ranges::lower_bound(tensors_.hosts(), name.first) - tensors_.hosts().begin());
      const Host& described = *topology_.FindHost(name.first);
      const Nic& nic = *std::ranges::find(described.nics, name.second, &Nic::name);
      network_.hosts.host_rates.out[host] += std::min(nic.out_bytes_per_second, PortRates::kMax);
      network_.hosts.host_rates.in[host] += std::min(nic.in_bytes_per_second, PortRates::kMax);
    }
  }

  void AddDevice(DeviceRank d) {
    const DeviceId& device = tensors_.devices()[d];
    if (gpus_[d] == nullptr) return AddOther(d);
    const HostGpu& gpu = *gpus_[d];
    const Nic& nic = NicOf(*topology_.FindHost(device.host), gpu);
    const int64_t sharing = gpus_of_nic_[{device.host, gpu.nic}];
    const HostRank host = tensors_.host_of(d);
    network_.host_of.push_back(host);
    network_.copy_rates.push_back(gpu.copy_bytes_per_second);
    AddPlace(network_.nics, device, std::max<int64_t>(1, nic.out_bytes_per_second / sharing),
             std::max<int64_t>(1, nic.in_bytes_per_second / sharing));
    network_.nics.out_latency_seconds.push_back(static_cast<double>(nic.out_latency_ns) * 1e-9);
    network_.nics.in_latency_seconds.push_back(static_cast<double>(nic.in_latency_ns) * 1e-9);
    if (network_.hosts.has_racks()) {
      network_.nics.rack_of_host.push_back(network_.hosts.rack_of_host[host]);
    }
    AddPlace(network_.links, device, gpu.link_out_bytes_per_second, gpu.link_in_bytes_per_second);
  }

  // One that takes no part: any rate will do.
  void AddOther(DeviceRank d) {
    const DeviceId& device = tensors_.devices()[d];
    const HostRank host = tensors_.host_of(d);
    network_.host_of.push_back(host);
    network_.copy_rates.push_back(1);
    AddPlace(network_.nics, device, 1, 1);
    network_.nics.out_latency_seconds.push_back(0);
    network_.nics.in_latency_seconds.push_back(0);
    if (network_.hosts.has_racks()) {
      network_.nics.rack_of_host.push_back(network_.hosts.rack_of_host[host]);
    }
    AddPlace(network_.links, device, 1, 1);
  }

  static void AddPlace(HostNetwork& network, const DeviceId& device, int64_t out, int64_t in) {
    network.hosts.push_back(ToString(device));
    for (PortRates* const rates : {&network.host_rates, &network.fastest_nic}) {
      rates->out.push_back(std::min(out, PortRates::kMax));
      rates->in.push_back(std::min(in, PortRates::kMax));
    }
  }

  // None is said by empty lists, which spares their arithmetic.
  static void DropLatenciesIfNone(HostNetwork& network) {
    const auto is_none = [](double seconds) { return seconds == 0; };
    if (!std::ranges::all_of(network.out_latency_seconds, is_none)) return;
    if (!std::ranges::all_of(network.in_latency_seconds, is_none)) return;
    network.out_latency_seconds.clear();
    network.in_latency_seconds.clear();
  }

  const TensorTable& tensors_;
  const Topology& topology_;
  std::vector<const HostGpu*> gpus_;  // by device; null: it is none
  std::map<std::pair<std::string, std::string>, int64_t> gpus_of_nic_;  // by host and name
  GpuNetwork network_;
};

}  // namespace

std::optional<GpuNetwork> GpuNetworkOf(const TensorTable& tensors, const Topology& topology) {
  GpuNetworkMaker maker(tensors, topology);
  if (!maker.FindGpus(/*all=*/true)) return std::nullopt;
  return std::move(maker).Make();
}

GpuNetwork GpuNetworkAmong(const TensorTable& tensors, const Topology& topology) {
  GpuNetworkMaker maker(tensors, topology);
  maker.FindGpus(/*all=*/false);
  return std::move(maker).Make();
}

}  // namespace crossmesh
