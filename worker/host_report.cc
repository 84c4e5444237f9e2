#include "worker/host_report.h"

#include "common/communicators/gpu_share.h"
#include "common/mesh/device.h"
#include "common/wire/tensor_codec.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {
namespace {

NvmlGpu ManagedOf(const v1::GpuHardware& hardware) {
  NvmlGpu gpu{.memory_bytes = hardware.memory_bytes(), .nvlinks = hardware.nvlinks()};
  if (hardware.has_persistence()) gpu.persistence = hardware.persistence();
  if (hardware.has_mig()) gpu.mig = hardware.mig();
  return gpu;
}

}  // namespace

std::optional<v1::Host> ReportHost(const SystemDevices& system,
                                   const google::protobuf::RepeatedPtrField<v1::Gpu>& gpus) {
  SystemDevices own{.gpus = {}, .nics = system.nics};
  std::vector<DeviceId> devices;
  std::set<std::string> uuids;
  for (const v1::Gpu& gpu : gpus) {
    const std::string uuid = UuidOf(gpu.process().gpu());
    const auto found = std::ranges::find(system.gpus, uuid, &SystemGpu::uuid);
    const absl::StatusOr<DeviceId> device = ParseDevice(gpu.device());
    if (found == system.gpus.end() || !device.ok() || !uuids.insert(uuid).second)
      return std::nullopt;
    if (!devices.empty() && devices.front().host != device->host) return std::nullopt;
    devices.push_back(*device);
    own.gpus.push_back(*found);
    if (gpu.has_hardware()) own.gpus.back().managed = ManagedOf(gpu.hardware());
  }
  if (devices.empty()) return std::nullopt;
  absl::StatusOr<Host> host = DescribeHost(own, devices.front().host);
  if (!host.ok()) return std::nullopt;
  for (size_t i = 0; i < devices.size(); ++i) host->gpus[i].device = devices[i].index;
  std::vector<Host> hosts;
  hosts.push_back(*std::move(host));
  const absl::StatusOr<Topology> topology = Topology::Create(std::move(hosts), {});
  if (!topology.ok()) return std::nullopt;
  return ToProto(*topology).hosts(0);
}

}  // namespace crossmesh
