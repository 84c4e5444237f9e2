#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The three products of a layer O = I W, of m rows, k columns of I and n columns of W. Libraries
// run each at a rate of its own.
enum class ProductMode : uint8_t {
  kForward,         // I W: m x k by k x n
  kInputGradient,   // dO W^T: m x n by n x k
  kWeightGradient,  // I^T dO: k x m by m x n
};
inline constexpr int kProductModes = 3;

// "forward", "input_gradient", "weight_gradient".
absl::string_view ProductModeName(ProductMode mode);

// The sizes of a layer, whatever the product.
struct ProductSize {
  double m = 0;
  double n = 0;
  double k = 0;

  friend bool operator==(const ProductSize&, const ProductSize&) = default;
};

struct MeasuredProduct {
  ProductMode mode = ProductMode::kForward;
  ProductSize size;
  double flops_per_second = 0;  // 2 m n k over the time that it took
};

// Measured rates of products, by size and mode: for each mode a lattice, that is, of every m with
// every n and every k that occurs. Between its points the logarithm of the rate is interpolated in
// the logarithms of m, n and k; so where larger products of the lattice take longer, all do.
// Immutable.
class ProductTable {
 public:
  // A rate, and where the table has it: at the size that is asked for, or at the nearest one.
  struct Rate {
    double flops_per_second = 0;
    ProductSize at;
    bool is_measured = false;  // there; else it is interpolated
  };

  // Nothing was measured.
  ProductTable() = default;
  // InvalidArgument, naming mode and size: a figure out of its range, a product that is there
  // twice, a combination that is missing.
  static absl::StatusOr<ProductTable> Create(std::span<const MeasuredProduct> products);

  bool empty() const;
  // Nothing where the mode was not measured.
  std::optional<Rate> Find(ProductMode mode, const ProductSize& size) const;

  friend bool operator==(const ProductTable&, const ProductTable&) = default;

 private:
  struct Lattice {
    std::array<std::vector<double>, 3> sizes;  // of m, n and k, ascending
    std::array<std::vector<double>, 3> logs;   // of these
    std::vector<double> log_rates;             // by m, n, k, the last one fastest

    friend bool operator==(const Lattice&, const Lattice&) = default;
  };

  static absl::StatusOr<Lattice> LatticeOf(ProductMode mode,
                                           std::span<const MeasuredProduct> products);

  std::array<Lattice, kProductModes> lattices_;
};

// A file {"products": [{"mode": "forward", "m": M, "n": N, "k": K, "flops_per_second": R}, ...]};
// without a mode a product stands for all three. InvalidArgument: what the file cannot mean, and
// as Create.
absl::StatusOr<ProductTable> ParseProductTable(absl::string_view what, absl::string_view text);

}  // namespace crossmesh
