#include "common/mesh/gpu_model.h"

#include <algorithm>
#include <array>

#include <absl/strings/match.h>

namespace crossmesh {
namespace {

constexpr double kCopyShare = 0.8 / 2;

// By data sheets. NVLink 3, 4 and 5 have 12, 18 and 18 links of 25, 25 and 50 GB/s.
constexpr std::array<GpuModel, 6> kModels = {{
    {"A100-SXM", 12, 300'000'000'000, 2'039'000'000'000},
    {"B200", 18, 900'000'000'000, 8'000'000'000'000},
    {"H100 80GB HBM3", 18, 450'000'000'000, 3'350'000'000'000},
    {"H100 PCIe", 0, 0, 2'000'000'000'000},
    {"H200", 18, 450'000'000'000, 4'800'000'000'000},
    {"L40S", 0, 0, 864'000'000'000},
}};

}  // namespace

int64_t GpuModel::copy_bytes_per_second() const {
  return static_cast<int64_t>(static_cast<double>(memory_bytes_per_second) * kCopyShare);
}

int64_t GpuModel::LinkBytesPerSecond(int links) const {
  return nvlinks == 0 ? 0 : nvlink_bytes_per_second / nvlinks * links;
}

const GpuModel* FindGpuModel(absl::string_view driver_name) {
  const auto* const found = std::ranges::find_if(kModels, [driver_name](const GpuModel& model) {
    return absl::StrContains(driver_name, model.name);
  });
  return found == kModels.end() ? nullptr : found;
}

}  // namespace crossmesh
