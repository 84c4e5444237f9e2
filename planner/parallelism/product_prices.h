#pragma once

#include "planner/parallelism/device_profile.h"
#include "planner/parallelism/product_table.h"

#include <cstddef>
#include <vector>

namespace crossmesh {

// ProductsOf a device, which remembers some of what it was asked last: rankings ask for few sizes
// again and again, and interpolating in a table takes ten times as long as looking one up. Equal
// answers. Thread-compatible.
class ProductPrices {
 public:
  // `device` must outlive it.
  explicit ProductPrices(const DeviceProfile& device)
      : device_(device), entries_(device.products.empty() ? 0 : kEntries) {}

  LayerProducts Of(const ProductSize& layer) {
    // By the law it takes no longer than to look.
    if (entries_.empty()) return ProductsOf(device_, layer);
    Entry& entry = entries_[PlaceOf(layer)];
    if (entry.layer != layer) entry = {layer, ProductsOf(device_, layer)};
    return entry.products;
  }
  const DeviceProfile& device() const { return device_; }

 private:
  struct Entry {
    ProductSize layer;  // none has sizes of 0
    LayerProducts products;
  };
  static constexpr size_t kEntries = 1024;

  static size_t PlaceOf(const ProductSize& layer);

  const DeviceProfile& device_;
  std::vector<Entry> entries_;  // each for one of the sizes that belong there
};

}  // namespace crossmesh
