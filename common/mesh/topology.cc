#include "common/mesh/topology.h"

#include "common/base/status_macros.h"
#include "common/mesh/device.h"

#include <algorithm>
#include <utility>

#include <absl/container/flat_hash_set.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

std::string QuotedName(absl::string_view name) {
  return absl::StrCat("\"", absl::CHexEscape(name.substr(0, 80)), "\"");
}

struct Range {
  int64_t least = 0;
  int64_t most = 0;
  absl::string_view most_in_words;
};
constexpr Range kNicRates = {1, Topology::kNicBytesPerSecondMax, " (10 Tbit/s)"};
constexpr Range kRackRates = {1, Topology::kBytesPerSecondMax};
constexpr Range kGpuRates = {1, Topology::kBytesPerSecondMax};
constexpr Range kLocalRates = {0, Topology::kBytesPerSecondMax};
constexpr Range kLatencies = {0, Topology::kLatencyNsMax, " (1 s)"};

absl::Status Check(absl::string_view object, absl::string_view which, int64_t value,
                   const Range& range) {
  if (value >= range.least && value <= range.most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(object, ": expected ", which, " of ", range.least,
                                                 " to ", range.most, range.most_in_words,
                                                 ", found ", value));
}

absl::Status CheckNics(const Host& host) {
  const auto count = static_cast<int64_t>(host.nics.size());
  if (count < 1 || count > Topology::kNicsPerHostMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "host ", host.name, ": expected 1 to ", Topology::kNicsPerHostMax, " NICs, found ", count));
  }
  absl::flat_hash_set<absl::string_view> names;
  for (const Nic& nic : host.nics) {
    if (nic.name.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("host ", host.name, ": a NIC has no name"));
    }
    const std::string object = absl::StrCat("host ", host.name, ", NIC ", QuotedName(nic.name));
    if (!names.insert(nic.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(object, " is named twice"));
    }
    RETURN_IF_ERROR(Check(object, "out_bytes_per_second", nic.out_bytes_per_second, kNicRates));
    RETURN_IF_ERROR(Check(object, "in_bytes_per_second", nic.in_bytes_per_second, kNicRates));
    RETURN_IF_ERROR(Check(object, "out_latency_ns", nic.out_latency_ns, kLatencies));
    RETURN_IF_ERROR(Check(object, "in_latency_ns", nic.in_latency_ns, kLatencies));
  }
  return absl::OkStatus();
}

absl::Status CheckGpus(const Host& host) {
  absl::flat_hash_set<int32_t> devices;
  for (const HostGpu& gpu : host.gpus) {
    const std::string object = absl::StrCat("GPU ", host.name, ".", gpu.device);
    if (gpu.device < 0 || gpu.device >= kDevicesPerHostMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          object, ": expected a device of 0 to ", kDevicesPerHostMax - 1, ", found ", gpu.device));
    }
    if (!devices.insert(gpu.device).second) {
      return absl::InvalidArgumentError(absl::StrCat(object, " is listed twice"));
    }
    if (std::ranges::find(host.nics, gpu.nic, &Nic::name) == host.nics.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(object, ": expected a NIC of its host, found ", QuotedName(gpu.nic)));
    }
    const auto check = [&object](absl::string_view which, int64_t rate) {
      return Check(object, which, rate, kGpuRates);
    };
    RETURN_IF_ERROR(check("link_out_bytes_per_second", gpu.link_out_bytes_per_second));
    RETURN_IF_ERROR(check("link_in_bytes_per_second", gpu.link_in_bytes_per_second));
    RETURN_IF_ERROR(check("copy_bytes_per_second", gpu.copy_bytes_per_second));
    RETURN_IF_ERROR(CheckSource(object + ", links", gpu.link_source));
    RETURN_IF_ERROR(CheckSource(object + ", copies", gpu.copy_source));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Topology> Topology::Create(std::vector<Host> hosts, std::vector<Rack> racks,
                                          int64_t assumed_bytes_per_second, GpuCosts gpu_costs) {
  Topology topology;
  RETURN_IF_ERROR(
      Check("network", "assumed_bytes_per_second", assumed_bytes_per_second, kNicRates));
  topology.assumed_bytes_per_second_ = assumed_bytes_per_second;
  RETURN_IF_ERROR(CheckCosts(gpu_costs));
  topology.gpu_costs_ = std::move(gpu_costs);
  RETURN_IF_ERROR(topology.AddHosts(std::move(hosts)));
  RETURN_IF_ERROR(topology.AddRacks(std::move(racks)));
  return topology;
}

absl::Status Topology::AddHosts(std::vector<Host> hosts) {
  hosts_ = std::move(hosts);
  for (size_t i = 0; i < hosts_.size(); ++i) {
    const Host& host = hosts_[i];
    if (!IsHostName(host.name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "host ", QuotedName(host.name), ": expected a name of the form ", "[a-z0-9._-]{1,63}"));
    }
    if (!host_index_.emplace(host.name, static_cast<int>(i)).second) {
      return absl::InvalidArgumentError(absl::StrCat("host ", host.name, " is named twice"));
    }
    RETURN_IF_ERROR(CheckNics(host));
    RETURN_IF_ERROR(CheckGpus(host));
    RETURN_IF_ERROR(Check(absl::StrCat("host ", host.name), "local_bytes_per_second",
                          host.local_bytes_per_second, kLocalRates));
  }
  return absl::OkStatus();
}

absl::Status Topology::AddRacks(std::vector<Rack> racks) {
  racks_ = std::move(racks);
  absl::flat_hash_set<absl::string_view> names;
  for (size_t i = 0; i < racks_.size(); ++i) {
    const Rack& rack = racks_[i];
    const std::string object = absl::StrCat("rack ", QuotedName(rack.name));
    if (rack.name.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("rack ", i, " has no name"));
    }
    if (!names.insert(rack.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(object, " is named twice"));
    }
    RETURN_IF_ERROR(Check(object, "up_bytes_per_second", rack.up_bytes_per_second, kRackRates));
    RETURN_IF_ERROR(Check(object, "down_bytes_per_second", rack.down_bytes_per_second, kRackRates));
    for (const std::string& host : rack.hosts) {
      if (FindHost(host) == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat(object, " names host ", QuotedName(host), ", which is not described"));
      }
      const auto [found, inserted] = rack_index_.emplace(host, static_cast<int>(i));
      if (!inserted) {
        return absl::InvalidArgumentError(
            absl::StrCat(object, " names host ", host, ", which is in rack ",
                         QuotedName(racks_[found->second].name), " already"));
      }
    }
  }
  return absl::OkStatus();
}

const Host* Topology::FindHost(absl::string_view name) const {
  const auto found = host_index_.find(name);
  return found == host_index_.end() ? nullptr : &hosts_[found->second];
}

const HostGpu* Topology::FindGpu(const DeviceId& device) const {
  const Host* const host = FindHost(device.host);
  if (host == nullptr) return nullptr;
  const auto found = std::ranges::find(host->gpus, device.index, &HostGpu::device);
  return found == host->gpus.end() ? nullptr : &*found;
}

int64_t Topology::RateOut(absl::string_view host) const {
  const Host* described = FindHost(host);
  if (described == nullptr) return assumed_bytes_per_second_;
  int64_t rate = 0;
  for (const Nic& nic : described->nics) rate += nic.out_bytes_per_second;
  return rate;
}

int64_t Topology::RateIn(absl::string_view host) const {
  const Host* described = FindHost(host);
  if (described == nullptr) return assumed_bytes_per_second_;
  int64_t rate = 0;
  for (const Nic& nic : described->nics) rate += nic.in_bytes_per_second;
  return rate;
}

Topology Topology::WithShare(double share) const {
  if (share == 1) return *this;
  const auto cut = [share](int64_t& rate) {
    // A port of rate 0 would never be done.
    rate = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(rate) * share));
  };
  Topology result = *this;
  cut(result.assumed_bytes_per_second_);
  for (Host& host : result.hosts_) {
    for (Nic& nic : host.nics) {
      cut(nic.out_bytes_per_second);
      cut(nic.in_bytes_per_second);
    }
  }
  for (Rack& rack : result.racks_) {
    cut(rack.up_bytes_per_second);
    cut(rack.down_bytes_per_second);
  }
  return result;
}

std::optional<int> Topology::RackOf(absl::string_view host) const {
  const auto found = rack_index_.find(host);
  if (found == rack_index_.end()) return std::nullopt;
  return found->second;
}

}  // namespace crossmesh
