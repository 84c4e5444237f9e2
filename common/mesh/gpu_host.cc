#include "common/mesh/gpu_host.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <array>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

struct Preset {
  absl::string_view name;
  int32_t gpus = 0;
  int32_t nics = 0;                     // GPUs next to each other share one, where there are fewer
  int64_t nic_bytes_per_second = 0;     // per direction, as all rates
  int64_t link_bytes_per_second = 0;    // NVLink, or the PCIe slot
  int64_t memory_bytes_per_second = 0;  // read or written
};

// By data sheets of DGX A100, H100 and B200, and of OVX with L40S: assumed until they are measured.
// NVLink 3, 4 and 5 have 12, 18 and 18 links of 25, 25 and 50 GB/s; PCIe 4.0 x16 carries about
// 26 GB/s of payload of its 32.
constexpr std::array<Preset, 4> kPresets = {{
    {"a100x8", 8, 8, 25'000'000'000, 300'000'000'000, 2'039'000'000'000},
    {"b200x8", 8, 8, 50'000'000'000, 900'000'000'000, 8'000'000'000'000},
    {"h100x8", 8, 8, 50'000'000'000, 450'000'000'000, 3'350'000'000'000},
    {"l40s-pcie", 4, 2, 25'000'000'000, 26'000'000'000, 864'000'000'000},
}};

// Of the memory's rate kernels reach so much, and what they copy is read and written.
constexpr double kCopyShare = 0.8 / 2;

}  // namespace

std::vector<std::string> GpuHostPresets() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

absl::StatusOr<Host> GpuHost(absl::string_view preset, std::string name) {
  const auto* const found = std::ranges::find(kPresets, preset, &Preset::name);
  if (found == kPresets.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "GPU host: expected ", absl::StrJoin(GpuHostPresets(), ", "), ", found \"", preset, "\""));
  }
  Host host{.name = std::move(name), .nics = {}};
  const auto nic_name = [](int32_t nic) { return absl::StrCat("nic", nic); };
  for (int32_t nic = 0; nic < found->nics; ++nic) {
    host.nics.push_back({.name = nic_name(nic),
                         .out_bytes_per_second = found->nic_bytes_per_second,
                         .in_bytes_per_second = found->nic_bytes_per_second});
  }
  for (int32_t gpu = 0; gpu < found->gpus; ++gpu) {
    host.gpus.push_back({.device = gpu,
                         .nic = nic_name(gpu * found->nics / found->gpus),
                         .link_out_bytes_per_second = found->link_bytes_per_second,
                         .link_in_bytes_per_second = found->link_bytes_per_second,
                         .copy_bytes_per_second = static_cast<int64_t>(
                             static_cast<double>(found->memory_bytes_per_second) * kCopyShare)});
  }
  return host;
}

absl::StatusOr<Topology> GpuHosts(absl::string_view preset, const std::vector<std::string>& names) {
  std::vector<Host> hosts;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(hosts.emplace_back(), GpuHost(preset, name));
  }
  return Topology::Create(std::move(hosts), {});
}

}  // namespace crossmesh
