#include "client/cli/grid_products.h"

#include "common/base/format.h"
#include "common/base/table.h"
#include "planner/parallelism/block_work.h"
#include "planner/parallelism/product_table.h"

#include <optional>
#include <utility>
#include <vector>

#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

struct ShownProduct {
  std::string object;
  std::string mode;
  ProductSize size;
  double seconds = 0;
  std::string source;

  double flops_per_second() const { return 2 * size.m * size.n * size.k / seconds; }
};

std::string SourceOf(const DeviceProfile& device, ProductMode mode, const ProductSize& size) {
  const std::optional<ProductTable::Rate> rate = device.products.Find(mode, size);
  if (!rate.has_value()) {
    return absl::StrFormat("law: %.2f of the peak, half of it at %.0f", device.product_ceiling,
                           device.half_size);
  }
  const absl::string_view how = rate->is_measured ? "measured" : "interpolated";
  if (rate->at == size) return std::string(how);
  return absl::StrFormat("law, scaled to what was %s at m=%.0f, n=%.0f, k=%.0f", how, rate->at.m,
                         rate->at.n, rate->at.k);
}

void AddProducts(const DeviceProfile& device, const std::string& object, const ProductSize& size,
                 std::vector<ShownProduct>& shown) {
  const LayerProducts seconds = ProductsOf(device, size);
  const auto add = [&](ProductMode mode, std::string name, double of_mode) {
    shown.push_back({.object = object,
                     .mode = std::move(name),
                     .size = size,
                     .seconds = of_mode,
                     .source = SourceOf(device, mode, size)});
  };
  if (device.products.empty()) return add(ProductMode::kForward, "all", seconds.forward);
  add(ProductMode::kForward, "forward", seconds.forward);
  add(ProductMode::kInputGradient, "input_gradient", seconds.input_gradient);
  add(ProductMode::kWeightGradient, "weight_gradient", seconds.weight_gradient);
}

std::vector<ShownProduct> ProductsOfGrid(const StepModel& step, const GridShape& shape) {
  std::vector<ShownProduct> shown;
  for (int i = 0; i < kBlockMatrices; ++i) {
    AddProducts(step.device(), std::string(step.blocks()[i].name),
                SizeOf(step.model(), step.training(), shape, i), shown);
  }
  if (step.model().vocabulary > 0) {
    AddProducts(step.device(), "logits", SizeOfLogits(step.model(), shape), shown);
  }
  return shown;
}

}  // namespace

std::string GridProductsTable(const StepModel& step, const GridShape& shape) {
  TextTable table({"PRODUCT", "MODE", "M>", "N>", "K>", "EACH>", "TFLOP/S>", "SOURCE"});
  for (const ShownProduct& product : ProductsOfGrid(step, shape)) {
    table.AddRow({product.object, product.mode, absl::StrFormat("%.0f", product.size.m),
                  absl::StrFormat("%.0f", product.size.n), absl::StrFormat("%.0f", product.size.k),
                  FormatSeconds(product.seconds),
                  absl::StrFormat("%.1f", product.flops_per_second() / 1e12), product.source});
  }
  return table.ToString();
}

nlohmann::json GridProductsDocument(const StepModel& step, const GridShape& shape) {
  nlohmann::json document = nlohmann::json::array();
  for (const ShownProduct& product : ProductsOfGrid(step, shape)) {
    document.push_back({{"product", product.object},
                        {"mode", product.mode},
                        {"m", product.size.m},
                        {"n", product.size.n},
                        {"k", product.size.k},
                        {"seconds", product.seconds},
                        {"flops_per_second", product.flops_per_second()},
                        {"source", product.source}});
  }
  return document;
}

}  // namespace crossmesh
