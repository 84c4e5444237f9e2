#include "planner/parallelism/product_table.h"

#include "common/base/status_macros.h"
#include "common/mesh/json_reader.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

constexpr std::array<ProductMode, kProductModes> kModes = {
    ProductMode::kForward, ProductMode::kInputGradient, ProductMode::kWeightGradient};
constexpr double kSizeMax = 1e9;
constexpr double kProductRateMax = 1e21;

std::array<double, 3> SizesOf(const ProductSize& size) { return {size.m, size.n, size.k}; }

std::string NameOf(ProductMode mode, const std::array<double, 3>& sizes) {
  return absl::StrCat("product ", ProductModeName(mode), " of m=", sizes[0], ", n=", sizes[1],
                      ", k=", sizes[2]);
}

absl::Status CheckProduct(const MeasuredProduct& product) {
  const std::array<double, 3> sizes = SizesOf(product.size);
  const auto in_range = [](double value, double most) { return value >= 1 && value <= most; };
  if (!std::ranges::all_of(sizes, [&](double size) { return in_range(size, kSizeMax); })) {
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(product.mode, sizes), ": expected sizes of 1 to ", kSizeMax));
  }
  if (in_range(product.flops_per_second, kProductRateMax)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(NameOf(product.mode, sizes), ": expected 1 to ",
                                                 kProductRateMax, " flops per second, found ",
                                                 product.flops_per_second));
}

// Between two neighbours of a dimension: `first`, and the part of the way to the next.
struct Between {
  size_t first = 0;
  double part = 0;
};

Between PlaceOf(const std::vector<double>& ascending, double value) {
  const auto after = std::ranges::upper_bound(ascending, value);
  if (after == ascending.begin()) return {};
  const auto first = static_cast<size_t>(after - ascending.begin()) - 1;
  if (after == ascending.end()) return {.first = first};
  return {.first = first,
          .part = (value - ascending[first]) / (ascending[first + 1] - ascending[first])};
}

absl::StatusOr<std::optional<ProductMode>> ReadMode(const JsonFields& fields) {
  if (!fields.Has("mode")) return std::nullopt;
  ASSIGN_OR_RETURN(const std::string name, fields.String("mode"));
  for (const ProductMode mode : kModes) {
    if (ProductModeName(mode) == name) return mode;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      fields.where(), ": mode: expected forward, input_gradient or weight_gradient, found \"", name,
      "\""));
}

}  // namespace

absl::string_view ProductModeName(ProductMode mode) {
  switch (mode) {
    case ProductMode::kForward:
      return "forward";
    case ProductMode::kInputGradient:
      return "input_gradient";
    case ProductMode::kWeightGradient:
      return "weight_gradient";
  }
  return "";
}

absl::StatusOr<ProductTable> ProductTable::Create(std::span<const MeasuredProduct> products) {
  ProductTable table;
  for (const MeasuredProduct& product : products) RETURN_IF_ERROR(CheckProduct(product));
  for (const ProductMode mode : kModes) {
    ASSIGN_OR_RETURN(table.lattices_[static_cast<size_t>(mode)], LatticeOf(mode, products));
  }
  return table;
}

absl::StatusOr<ProductTable::Lattice> ProductTable::LatticeOf(
    ProductMode mode, std::span<const MeasuredProduct> products) {
  Lattice lattice;
  for (const MeasuredProduct& product : products) {
    if (product.mode != mode) continue;
    for (size_t i = 0; i < 3; ++i) lattice.sizes[i].push_back(SizesOf(product.size)[i]);
  }
  if (lattice.sizes[0].empty()) return lattice;
  double points = 1;  // may be more than there are products
  for (size_t i = 0; i < 3; ++i) {
    std::vector<double>& sizes = lattice.sizes[i];
    std::ranges::sort(sizes);
    sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
    for (const double size : sizes) lattice.logs[i].push_back(std::log(size));
    points *= static_cast<double>(sizes.size());
  }
  if (points > static_cast<double>(products.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "products ", ProductModeName(mode), ": expected one of every m with every n and every k, ",
        points, " of them, found less"));
  }
  const double none = std::numeric_limits<double>::quiet_NaN();
  lattice.log_rates.assign(static_cast<size_t>(points), none);
  for (const MeasuredProduct& product : products) {
    if (product.mode != mode) continue;
    size_t place = 0;
    for (size_t i = 0; i < 3; ++i) {
      const std::vector<double>& sizes = lattice.sizes[i];
      const auto found = std::ranges::lower_bound(sizes, SizesOf(product.size)[i]);
      place = place * sizes.size() + static_cast<size_t>(found - sizes.begin());
    }
    if (!std::isnan(lattice.log_rates[place])) {
      return absl::InvalidArgumentError(
          absl::StrCat(NameOf(mode, SizesOf(product.size)), ": expected it once, found it again"));
    }
    lattice.log_rates[place] = std::log(product.flops_per_second);
  }
  const auto missing =
      std::ranges::find_if(lattice.log_rates, [](double r) { return std::isnan(r); });
  if (missing == lattice.log_rates.end()) return lattice;
  auto place = static_cast<size_t>(missing - lattice.log_rates.begin());
  std::array<double, 3> sizes{};
  for (size_t i = 3; i-- > 0;) {
    sizes[i] = lattice.sizes[i][place % lattice.sizes[i].size()];
    place /= lattice.sizes[i].size();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      NameOf(mode, sizes), ": expected one of every m with every n and every k, found none"));
}

bool ProductTable::empty() const {
  return std::ranges::all_of(lattices_, [](const Lattice& l) { return l.log_rates.empty(); });
}

std::optional<ProductTable::Rate> ProductTable::Find(ProductMode mode,
                                                     const ProductSize& size) const {
  const Lattice& lattice = lattices_[static_cast<size_t>(mode)];
  if (lattice.log_rates.empty()) return std::nullopt;
  std::array<double, 3> at = SizesOf(size);
  std::array<Between, 3> between;
  for (size_t i = 0; i < 3; ++i) {
    at[i] = std::clamp(at[i], lattice.sizes[i].front(), lattice.sizes[i].back());
    between[i] = PlaceOf(lattice.logs[i], std::log(at[i]));
  }
  double log_rate = 0;
  for (unsigned corner = 0; corner < 8; ++corner) {
    double weight = 1;
    size_t place = 0;
    for (size_t i = 0; i < 3; ++i) {
      const bool next = (corner >> i & 1U) != 0;
      weight *= next ? between[i].part : 1 - between[i].part;
      place = place * lattice.sizes[i].size() + between[i].first + (next ? 1 : 0);
    }
    // Without weight it may be beyond the lattice.
    if (weight > 0) log_rate += weight * lattice.log_rates[place];
  }
  return Rate{
      .flops_per_second = std::exp(log_rate),
      .at = {at[0], at[1], at[2]},
      .is_measured = std::ranges::all_of(between, [](const Between& b) { return b.part == 0; })};
}

absl::StatusOr<ProductTable> ParseProductTable(absl::string_view what, absl::string_view text) {
  constexpr std::array<absl::string_view, 1> kFileKeys = {"products"};
  constexpr std::array<absl::string_view, 5> kKeys = {"flops_per_second", "k", "m", "mode", "n"};
  ASSIGN_OR_RETURN(const nlohmann::json document, ParseJson(what, text));
  ASSIGN_OR_RETURN(const JsonFields file, JsonFields::Of(document, std::string(what), kFileKeys));
  ASSIGN_OR_RETURN(const nlohmann::json* const entries, file.Array("products"));
  std::vector<MeasuredProduct> products;
  for (size_t i = 0; i < entries->size(); ++i) {
    ASSIGN_OR_RETURN(const JsonFields fields,
                     JsonFields::Of((*entries)[i], absl::StrCat(what, ": product ", i), kKeys));
    MeasuredProduct product;
    ASSIGN_OR_RETURN(const std::optional<ProductMode> mode, ReadMode(fields));
    ASSIGN_OR_RETURN(product.size.m, fields.Integer("m"));
    ASSIGN_OR_RETURN(product.size.n, fields.Integer("n"));
    ASSIGN_OR_RETURN(product.size.k, fields.Integer("k"));
    ASSIGN_OR_RETURN(product.flops_per_second, fields.Integer("flops_per_second"));
    for (const ProductMode each : kModes) {
      product.mode = each;
      if (mode.value_or(each) == each) products.push_back(product);
    }
  }
  return ProductTable::Create(products);
}

}  // namespace crossmesh
