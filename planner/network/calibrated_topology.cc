#include "planner/network/calibrated_topology.h"

#include "common/base/status_macros.h"
#include "planner/network/gpu_network.h"
#include "planner/network/message_channels.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status Check(const GpuFigures& figures, absl::string_view name, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("GPU ", ToString(figures.device), ": expected ", name,
                                            " of 1 to ", most, ", measured ", value));
}

absl::Status Check(const GpuFigures& figures) {
  RETURN_IF_ERROR(Check(figures, "launch_ns", figures.launch_ns, kGpuCostNsMax));
  RETURN_IF_ERROR(Check(figures, "group_ns", figures.group_ns, kGpuCostNsMax));
  RETURN_IF_ERROR(Check(figures, "message_ns", figures.message_ns, kGpuCostNsMax));
  RETURN_IF_ERROR(
      Check(figures, "copy_bytes_per_second", figures.copy_bytes_per_second, kGpuCostRateMax));
  if (figures.exchange_bytes_per_second == 0) return absl::OkStatus();
  RETURN_IF_ERROR(
      Check(figures, "exchange_message_bytes", figures.exchange_message_bytes, kGpuCostRateMax));
  return Check(figures, "exchange_bytes_per_second", figures.exchange_bytes_per_second,
               kGpuCostRateMax);
}

class Calibration {
 public:
  Calibration(std::span<const GpuFigures> figures, const Topology& before, absl::string_view time)
      : figures_(figures),
        before_(before),
        time_(time),
        hosts_(before.hosts()),
        costs_(before.gpu_costs()) {}

  absl::StatusOr<CalibratedNetwork> Make() && {
    for (const GpuFigures& figures : figures_) {
      RETURN_IF_ERROR(Check(figures));
      TakeCosts(figures);
      TakeRates(figures);
    }
    for (const auto& [host, exchanges] : exchanges_) TakeExchanges(host, exchanges);
    WarnOfChannels();
    WarnOfOthers();
    ASSIGN_OR_RETURN(Topology topology,
                     Topology::Create(std::move(hosts_), before_.racks(),
                                      before_.assumed_bytes_per_second(), std::move(costs_)));
    return CalibratedNetwork{std::move(topology), std::move(warnings_)};
  }

 private:
  // A GPU of the description, and what it exchanged.
  struct Exchange {
    HostGpu* gpu = nullptr;
    const GpuFigures* figures = nullptr;
  };

  std::string SourceOf(const GpuFigures& figures) const {
    return absl::StrCat("measured on ", absl::string_view(figures.model).substr(0, 100), " at ",
                        time_);
  }

  void TakeCosts(const GpuFigures& figures) {
    const auto take = [&](GpuCost& cost, int64_t value) {
      if (is_first_ || value > cost.value) cost = {.value = value, .source = SourceOf(figures)};
    };
    take(costs_.launch_ns, figures.launch_ns);
    take(costs_.group_ns, figures.group_ns);
    take(costs_.message_ns, figures.message_ns);
    is_first_ = false;
  }

  HostGpu* Find(const DeviceId& device) {
    for (Host& host : hosts_) {
      if (host.name != device.host) continue;
      const auto found = std::ranges::find(host.gpus, device.index, &HostGpu::device);
      return found == host.gpus.end() ? nullptr : &*found;
    }
    return nullptr;
  }

  void TakeRates(const GpuFigures& figures) {
    HostGpu* const gpu = Find(figures.device);
    if (gpu == nullptr) {
      warnings_.push_back(absl::StrCat("GPU ", ToString(figures.device),
                                       ": the network's description does not list it, so that its "
                                       "copies and links are not kept"));
      return;
    }
    gpu->copy_bytes_per_second = figures.copy_bytes_per_second;
    gpu->copy_source = SourceOf(figures);
    if (figures.exchange_bytes_per_second == 0) {
      warnings_.push_back(absl::StrCat("GPU ", ToString(figures.device),
                                       ": it was measured alone; its links stay as they were, ",
                                       gpu->link_source));
    } else if (figures.is_share) {
      warnings_.push_back(absl::StrCat("GPU ", ToString(figures.device),
                                       ": it is a share, so that what it exchanges says nothing"));
    } else {
      exchanges_[figures.device.host].push_back({.gpu = gpu, .figures = &figures});
    }
  }

  // As the planner counts them, of all messages that a GPU sent at once: one.
  static int64_t ChannelsOf(const std::string& host, const std::vector<Exchange>& exchanges) {
    GpuNetwork network;
    network.hosts.hosts = {host};
    for (const Exchange& exchange : exchanges) {
      network.host_of.push_back(0);
      network.links.host_rates.out.push_back(exchange.gpu->link_out_bytes_per_second);
      network.links.host_rates.in.push_back(exchange.gpu->link_in_bytes_per_second);
    }
    return MessageChannels(network).Of(exchanges.front().figures->exchange_message_bytes);
  }

  void TakeExchanges(const std::string& host, const std::vector<Exchange>& exchanges) {
    const int64_t channels = ChannelsOf(host, exchanges);
    const GpuCost assumed = before_.gpu_costs().channel_bytes_per_second;
    for (const auto& [gpu, figures] : exchanges) {
      const int64_t rate = figures->exchange_bytes_per_second;
      const int64_t link = std::min(gpu->link_out_bytes_per_second, gpu->link_in_bytes_per_second);
      if (link / channels <= assumed.value) {
        gpu->link_out_bytes_per_second = rate;
        gpu->link_in_bytes_per_second = rate;
        gpu->link_source = SourceOf(*figures);
        continue;
      }
      warnings_.push_back(absl::StrCat("GPU ", ToString(figures->device), ": ", channels,
                                       " channels limit what it exchanges; its links stay as they "
                                       "were, ",
                                       gpu->link_source));
      const int64_t of_channel = std::max<int64_t>(1, rate / channels);
      if (of_channel >= channel_rate_) continue;
      channel_rate_ = of_channel;
      costs_.channel_bytes_per_second = {.value = of_channel, .source = SourceOf(*figures)};
    }
  }

  void WarnOfChannels() {
    if (channel_rate_ < std::numeric_limits<int64_t>::max()) return;
    warnings_.push_back(absl::StrCat(
        "channel_bytes_per_second stays as it was, ", costs_.channel_bytes_per_second.source, ": ",
        exchanges_.empty() ? "no GPU exchanged bytes with another one of its host"
                           : "links limit what GPUs exchange"));
  }

  void WarnOfOthers() {
    for (const Host& host : before_.hosts()) {
      for (const HostGpu& gpu : host.gpus) {
        const DeviceId device = {host.name, gpu.device};
        if (std::ranges::find(figures_, device, &GpuFigures::device) != figures_.end()) continue;
        warnings_.push_back(
            absl::StrCat("GPU ", ToString(device), ": not measured, it stays as it was"));
      }
    }
  }

  const std::span<const GpuFigures> figures_;
  const Topology& before_;
  const absl::string_view time_;
  std::vector<Host> hosts_;
  GpuCosts costs_;
  bool is_first_ = true;
  int64_t channel_rate_ = std::numeric_limits<int64_t>::max();  // the least that was measured
  std::map<std::string, std::vector<Exchange>> exchanges_;      // by host
  std::vector<std::string> warnings_;
};

}  // namespace

absl::StatusOr<CalibratedNetwork> CalibratedTopology(std::span<const GpuFigures> figures,
                                                     const Topology& before,
                                                     absl::string_view time) {
  return Calibration(figures, before, time).Make();
}

}  // namespace crossmesh
