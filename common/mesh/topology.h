#pragma once

#include "common/mesh/device.h"
#include "common/mesh/gpu_costs.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// A network port: full duplex, with a rate per direction in bytes per second, and what it adds per
// direction to the time that a byte is on its way, in nanoseconds.
struct Nic {
  std::string name;
  int64_t out_bytes_per_second = 0;
  int64_t in_bytes_per_second = 0;
  int64_t out_latency_ns = 0;
  int64_t in_latency_ns = 0;
  friend bool operator==(const Nic&, const Nic&) = default;
};

// A GPU of a host: the NIC that it sends and receives by, and what it exchanges with the other GPUs
// of its host, over NVLink or PCIe, per direction and with all of them together.
struct HostGpu {
  int32_t device = 0;  // the index of its DeviceId
  std::string nic;     // one of the host's
  int64_t link_out_bytes_per_second = 0;
  int64_t link_in_bytes_per_second = 0;
  // What its kernels read and write again: so fast tiles are packed, unpacked and copied.
  int64_t copy_bytes_per_second = 0;
  // Where the rates of its links and of its copies come from.
  std::string link_source{kAssumed};
  std::string copy_source{kAssumed};
  friend bool operator==(const HostGpu&, const HostGpu&) = default;
};

struct Host {
  std::string name;
  std::vector<Nic> nics;
  // Devices that are not listed are in host memory, or GPUs of which nothing is known.
  std::vector<HostGpu> gpus = {};
  // What its devices exchange among each other, all together; 0: not a limit.
  int64_t local_bytes_per_second = 0;
  friend bool operator==(const Host&, const Host&) = default;
};

// Hosts behind one uplink: `up` limits what leaves the rack, `down` what enters it.
struct Rack {
  std::string name;
  std::vector<std::string> hosts;
  int64_t up_bytes_per_second = 0;
  int64_t down_bytes_per_second = 0;
  friend bool operator==(const Rack&, const Rack&) = default;
};

// The described network. Immutable. Hosts that it does not name have one NIC at the assumed rate in
// both directions; FindHost tells which those are.
class Topology {
 public:
  static constexpr int64_t kAssumedBytesPerSecond = 12'500'000'000;  // 100 Gbit/s
  // No NIC is faster: 10 Tbit/s.
  static constexpr int64_t kNicBytesPerSecondMax = 1'250'000'000'000;
  // Of a rack, or inside a host.
  static constexpr int64_t kBytesPerSecondMax = int64_t{1} << 50;
  static constexpr int64_t kLatencyNsMax = 1'000'000'000;  // 1 s
  static constexpr int64_t kNicsPerHostMax = 1024;

  Topology() = default;  // nothing described: every host has one NIC at the assumed rate

  // InvalidArgument: a host misnamed or named twice, a host without a NIC or with too many, a NIC
  // or rack without a name or named twice, a rate < 1 (local: < 0) or over the limit, a latency < 0
  // or over the limit, a GPU that is no device, is listed twice or names an unknown NIC, a rack
  // that names an unknown host, a host in two racks, what CheckCosts and CheckSource refuse. Each
  // message names the object.
  static absl::StatusOr<Topology> Create(std::vector<Host> hosts, std::vector<Rack> racks,
                                         int64_t assumed_bytes_per_second = kAssumedBytesPerSecond,
                                         GpuCosts gpu_costs = {});

  const std::vector<Host>& hosts() const { return hosts_; }
  const std::vector<Rack>& racks() const { return racks_; }
  int64_t assumed_bytes_per_second() const { return assumed_bytes_per_second_; }
  const GpuCosts& gpu_costs() const { return gpu_costs_; }

  // Null when the host is not described.
  const Host* FindHost(absl::string_view name) const;
  // Sums over the host's NICs; the assumed rate when the host is not described.
  int64_t RateOut(absl::string_view host) const;
  int64_t RateIn(absl::string_view host) const;
  // Null when it is not listed.
  const HostGpu* FindGpu(const DeviceId& device) const;
  // The same network with so much of the rates of NICs and racks, above 0 to 1; at least 1 byte per
  // second is left.
  Topology WithShare(double share) const;
  // Index into racks(), or nothing.
  std::optional<int> RackOf(absl::string_view host) const;

  friend bool operator==(const Topology&, const Topology&) = default;

 private:
  absl::Status AddHosts(std::vector<Host> hosts);
  absl::Status AddRacks(std::vector<Rack> racks);

  std::vector<Host> hosts_;
  std::vector<Rack> racks_;
  int64_t assumed_bytes_per_second_ = kAssumedBytesPerSecond;
  GpuCosts gpu_costs_;
  absl::flat_hash_map<std::string, int> host_index_;
  absl::flat_hash_map<std::string, int> rack_index_;
};

}  // namespace crossmesh
