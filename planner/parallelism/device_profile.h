#pragma once

#include "planner/parallelism/product_table.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// What a device computes and holds.
struct DeviceProfile {
  std::string name;
  double flops_per_second = 0;  // the vendor's peak, dense, of the elements in use
  // The part of the peak that large products reach, and the size at which a dimension has half of
  // it: a product of m x k by k x n reaches
  //   ceiling * m / (m + half) * n / (n + half) * k / (k + half).
  double product_ceiling = 0.78;
  double half_size = 80;
  double memory_bytes_per_second = 0;  // that it reads and writes
  // Of products that were measured: in the place of the above.
  ProductTable products = {};
  int64_t memory_bytes = 0;
  // What computing takes longer while collectives run beside it. Galvatron ships 1.1256.
  double overlap_slowdown = 1.1256;

  friend bool operator==(const DeviceProfile&, const DeviceProfile&) = default;
};

// InvalidArgument, naming the figure: not above 0, a ceiling above 1, a slow-down below 1.
absl::Status Validate(const DeviceProfile& device);

// Seconds of a product of m x k by k x n: what it computes, or what it reads and writes of elements
// of 2 bytes, whichever takes longer. The order of m, n and k makes no difference.
double ProductSeconds(const DeviceProfile& device, double m, double n, double k);
// The same of operands and a result that are on the chip already.
double ProductSecondsOnChip(const DeviceProfile& device, double m, double n, double k);

// The three products of a layer, in seconds.
struct LayerProducts {
  double forward = 0;
  double input_gradient = 0;
  double weight_gradient = 0;

  double backward() const { return input_gradient + weight_gradient; }
};
// By the device's table where it has the mode, beyond its sizes in proportion to
// ProductSecondsOnChip; by ProductSeconds otherwise.
LayerProducts ProductsOf(const DeviceProfile& device, const ProductSize& layer);

// "a100", "gh200", "h100", "mi250x": peaks and sizes of memory are the makers'; ceiling, half size
// and 0.78 of the memory's rate are fitted to the published step times of Megatron on A100
// (docs/grids.md), and assumed for the others.
std::span<const DeviceProfile> DevicePresets();
// InvalidArgument, with the names that there are.
absl::StatusOr<DeviceProfile> FindDevicePreset(absl::string_view name);

}  // namespace crossmesh
