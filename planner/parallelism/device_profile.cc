#include "planner/parallelism/device_profile.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

const std::vector<DeviceProfile>& Presets() {
  static const auto& presets = *new std::vector<DeviceProfile>{{.name = "a100",
                                                                .flops_per_second = 312e12,
                                                                .memory_bytes_per_second = 1.6e12,
                                                                .memory_bytes = 80'000'000'000},
                                                               {.name = "gh200",
                                                                .flops_per_second = 989e12,
                                                                .memory_bytes_per_second = 3.1e12,
                                                                .memory_bytes = 96'000'000'000},
                                                               {.name = "h100",
                                                                .flops_per_second = 989e12,
                                                                .memory_bytes_per_second = 2.6e12,
                                                                .memory_bytes = 80'000'000'000},
                                                               {.name = "mi250x",
                                                                .flops_per_second = 191.5e12,
                                                                .memory_bytes_per_second = 1.28e12,
                                                                .memory_bytes = 64'000'000'000}};
  return presets;
}

}  // namespace

absl::Status Validate(const DeviceProfile& device) {
  const struct {
    absl::string_view name;
    double value;
    double least;
    double most;
  } figures[] = {{"flops per second", device.flops_per_second, 1, 1e21},
                 {"product ceiling", device.product_ceiling, 1e-6, 1},
                 {"half size", device.half_size, 0, 1e9},
                 {"memory bytes per second", device.memory_bytes_per_second, 1, 1e21},
                 {"memory bytes", static_cast<double>(device.memory_bytes), 1, 1e18},
                 {"overlap slow-down", device.overlap_slowdown, 1, 100}};
  for (const auto& [name, value, least, most] : figures) {
    if (std::isfinite(value) && value >= least && value <= most) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "device ", device.name, ": ", name, ": expected ", least, " to ", most, ", found ", value));
  }
  return absl::OkStatus();
}

double ProductSecondsOnChip(const DeviceProfile& device, double m, double n, double k) {
  const double half = device.half_size;
  // 2 m n k over peak and efficiency, without dividing thrice.
  return 2 * (m + half) * (n + half) * (k + half) /
         (device.flops_per_second * device.product_ceiling);
}

double ProductSeconds(const DeviceProfile& device, double m, double n, double k) {
  const double moved = 2 * (m * n + n * k + k * m) / device.memory_bytes_per_second;
  return std::max(ProductSecondsOnChip(device, m, n, k), moved);
}

LayerProducts ProductsOf(const DeviceProfile& device, const ProductSize& layer) {
  const double law = ProductSeconds(device, layer.m, layer.n, layer.k);
  if (device.products.empty()) return {law, law, law};
  const auto seconds = [&](ProductMode mode) {
    const std::optional<ProductTable::Rate> rate = device.products.Find(mode, layer);
    if (!rate.has_value()) return law;
    const ProductSize& at = rate->at;
    const double measured = 2 * at.m * at.n * at.k / rate->flops_per_second;
    if (at == layer) return measured;
    // Not by what reads and writes limit: of a part of the sizes alone that can fall with the rest.
    return measured * ProductSecondsOnChip(device, layer.m, layer.n, layer.k) /
           ProductSecondsOnChip(device, at.m, at.n, at.k);
  };
  return {seconds(ProductMode::kForward), seconds(ProductMode::kInputGradient),
          seconds(ProductMode::kWeightGradient)};
}

std::span<const DeviceProfile> DevicePresets() { return Presets(); }

absl::StatusOr<DeviceProfile> FindDevicePreset(absl::string_view name) {
  const auto found = std::ranges::find(Presets(), name, &DeviceProfile::name);
  if (found != Presets().end()) return *found;
  return absl::InvalidArgumentError(absl::StrCat(
      "device: expected one of ",
      absl::StrJoin(
          Presets(), ", ",
          [](std::string* out, const DeviceProfile& preset) { absl::StrAppend(out, preset.name); }),
      ", found \"", name, "\""));
}

}  // namespace crossmesh
