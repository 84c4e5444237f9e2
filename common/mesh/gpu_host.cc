#include "common/mesh/gpu_host.h"

#include "common/base/status_macros.h"
#include "common/mesh/gpu_model.h"

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
  int32_t nics = 0;                  // GPUs next to each other share one, where there are fewer
  int64_t nic_bytes_per_second = 0;  // per direction, as all rates
  absl::string_view model;
};

// By data sheets of DGX A100, H100 and B200, and of OVX with L40S: assumed until they are measured.
constexpr std::array<Preset, 4> kPresets = {{
    {"a100x8", 8, 8, 25'000'000'000, "A100-SXM"},
    {"b200x8", 8, 8, 50'000'000'000, "B200"},
    {"h100x8", 8, 8, 50'000'000'000, "H100 80GB HBM3"},
    {"l40s-pcie", 4, 2, 25'000'000'000, "L40S"},
}};

// Payload of PCIe 4.0 x16, of its 32 GB/s: where there is no NVLink.
constexpr int64_t kSlotBytesPerSecond = 26'000'000'000;

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
  const GpuModel& model = *FindGpuModel(found->model);
  const int64_t nvlink = model.nvlink_bytes_per_second;
  const int64_t link = nvlink > 0 ? nvlink : kSlotBytesPerSecond;
  for (int32_t gpu = 0; gpu < found->gpus; ++gpu) {
    host.gpus.push_back({.device = gpu,
                         .nic = nic_name(gpu * found->nics / found->gpus),
                         .link_out_bytes_per_second = link,
                         .link_in_bytes_per_second = link,
                         .copy_bytes_per_second = model.copy_bytes_per_second()});
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
