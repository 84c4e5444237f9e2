#include "planner/parallelism/published/tensor_families.h"

#include <algorithm>
#include <cmath>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Sums over a block's matrices, of rows of inputs, of weights, of rows of outputs.
struct BlockSums {
  double inputs = 0;
  double weights = 0;
  double outputs = 0;
};
BlockSums SumsOf(int64_t tokens, int64_t hidden) {
  const auto m = static_cast<double>(tokens);
  const auto h = static_cast<double>(hidden);
  // h -> 3h, h -> h, h -> 4h, 4h -> h.
  return {.inputs = 7 * m * h, .weights = 12 * h * h, .outputs = 9 * m * h};
}

// SUMMA forward moves inputs and weights, backward twice as much.
TensorFamily Summa(const std::string& name, double forward) {
  return {.name = name, .forward_elements = forward, .backward_elements = 2 * forward};
}

void AddTwoAndAHalf(int64_t devices, const BlockSums& sums, std::vector<TensorFamily>& families) {
  for (int64_t q = 2; q * q <= devices; ++q) {
    if (devices % (q * q) != 0) continue;
    const int64_t d = devices / (q * q);
    if (d == 1) continue;
    const auto root = static_cast<double>(q);
    const auto depth = static_cast<double>(d);
    TensorFamily& family = families.emplace_back(
        Summa(absl::StrCat("2.5-D q=", q, " d=", d, ", pipelined"),
              (sums.inputs / depth + sums.weights) * (root - 1) / (root * root)));
    family.depth_sum_elements = 2 * (depth - 1) / depth * sums.weights / (root * root);
  }
}

int64_t ExactRoot(int64_t value, int power) {
  const auto root = static_cast<int64_t>(
      std::llround(std::pow(static_cast<double>(value), 1.0 / static_cast<double>(power))));
  int64_t product = 1;
  for (int i = 0; i < power; ++i) product *= root;
  return product == value ? root : 0;
}

}  // namespace

absl::Status CubeProduct::Validate() const {
  const struct {
    absl::string_view name;
    int64_t size;
    int64_t divisor;
  } sizes[] = {{"M", m, q * q}, {"K", k, q}, {"N", n, q * q}};
  for (const auto& [name, size, divisor] : sizes) {
    if (size > 0 && size % divisor == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "cube of q=", q, ": ", name, ": expected a multiple of ", divisor, ", found ", size));
  }
  return absl::OkStatus();
}

std::array<CubeCollective, 3> CollectivesOf(const CubeProduct& product, CubeForm form) {
  const int64_t q = product.q;
  const auto of = [q](absl::string_view op, absl::string_view matrix, absl::string_view line,
                      int64_t elements) -> CubeCollective {
    const int64_t shard = elements / (q * q * q);
    return {op, matrix, line, shard, q * shard, (q - 1) * shard};
  };
  const int64_t a = product.m * product.k;
  const int64_t b = product.k * product.n;
  const int64_t c = product.m * product.n;
  switch (form) {
    case CubeForm::kForward:
      return {of("all_gather", "A", "input", a), of("all_gather", "B", "weight", b),
              of("reduce_scatter", "C", "output", c)};
    case CubeForm::kInputGradient:
      return {of("all_gather", "dC", "output", c), of("all_gather", "B", "weight", b),
              of("reduce_scatter", "dA", "input", a)};
    case CubeForm::kWeightGradient:
      return {of("all_gather", "A", "input", a), of("all_gather", "dC", "output", c),
              of("reduce_scatter", "dB", "weight", b)};
  }
  return {};
}

std::vector<TensorFamily> TensorFamilies(int64_t devices, int64_t tokens, int64_t hidden) {
  const BlockSums sums = SumsOf(tokens, hidden);
  const auto p = static_cast<double>(devices);
  // Two pairs of layers, with a sum of m x h in either pass.
  const double pairs = 2 * 2 * (p - 1) / p * static_cast<double>(tokens * hidden);
  std::vector<TensorFamily> families = {{.name = "1-D (column then row pair)",
                                         .forward_elements = pairs,
                                         .backward_elements = pairs}};
  if (const int64_t q = ExactRoot(devices, 2); q > 1) {
    const auto root = static_cast<double>(q);
    const double pipelined = (sums.inputs + sums.weights) * (root - 1) / (root * root);
    families.push_back(Summa("2-D SUMMA, pipelined broadcasts", pipelined));
    families.push_back(Summa("2-D SUMMA, hop-by-hop broadcasts", root * pipelined));
  }
  AddTwoAndAHalf(devices, sums, families);
  if (const int64_t q = ExactRoot(devices, 3); q > 1) {
    const auto root = static_cast<double>(q);
    const double once =
        (root - 1) * (sums.inputs + sums.weights + sums.outputs) / (root * root * root);
    families.push_back({.name = "3-D cube, gathered operands kept",
                        .forward_elements = once,
                        .backward_elements = once});
    families.push_back({.name = "3-D cube, operands gathered again",
                        .forward_elements = once,
                        .backward_elements = 2 * once});
  }
  return families;
}

BlockElements ElementsOnGrid(const Grid& grid, int64_t tokens, int64_t hidden) {
  const auto m = static_cast<double>(tokens);
  const auto h = static_cast<double>(hidden);
  const auto c = static_cast<double>(grid.c());
  const auto r = static_cast<double>(grid.r());
  const auto z = static_cast<double>(grid.z());
  const double degree = c * r * z;
  // Outputs of normal layers are 7 h wide, of transposed ones 2 h; inputs 2 h and 5 h.
  const double forward = 2 * m * h * (7 * (c - 1) + 2 * (r - 1)) / degree;
  const double backward = 2 * m * h * (2 * (r - 1) + 5 * (c - 1)) / degree;
  const double gather = 12 * h * h * (z - 1) / degree;
  return {forward + gather, backward + 2 * gather};
}

Grid LeastElementsGrid(int64_t tensor_degree, int64_t tokens, int64_t hidden) {
  Grid best;
  double least = -1;
  for (int64_t c = 1; c <= tensor_degree; c *= 2) {
    for (int64_t r = 1; c * r <= tensor_degree; r *= 2) {
      if (tensor_degree % (c * r) != 0) continue;
      Grid grid;
      grid[GridAxis::kC] = c;
      grid[GridAxis::kR] = r;
      grid[GridAxis::kZ] = tensor_degree / (c * r);
      const double elements = ElementsOnGrid(grid, tokens, hidden).total();
      if (least >= 0 && elements >= least) continue;
      least = elements;
      best = grid;
    }
  }
  return best;
}

GridSeed SeedOf(int64_t tensor_degree, int64_t tokens, int64_t hidden) {
  const auto t = static_cast<double>(tensor_degree);
  const auto m = static_cast<double>(tokens);
  const auto h = static_cast<double>(hidden);
  GridSeed seed{.depth_tokens = 4.5 * h * t};
  seed.c = std::cbrt(t * h / (2 * m));
  if (seed.c >= 1) {
    seed.r = 3 * seed.c;
    seed.z = 2 * m / (3 * h) * seed.c;
    return seed;
  }
  seed.c = 1;
  seed.r = std::max(1.0, std::sqrt(4.5 * h * t / m));
  seed.z = t / seed.r;
  return seed;
}

}  // namespace crossmesh
