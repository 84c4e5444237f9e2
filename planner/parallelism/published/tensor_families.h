// Tensor parallelism in one, two, two and a half and three dimensions: what each device sends
// (arXiv 1909.08053, 2104.05343, 2105.14500, 2105.14450), on one scale: pipelined broadcasts,
// rings, elements.

#pragma once

#include "planner/parallelism/grid.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// C = A B of M x K by K x N on a cube of q^3 devices, rank = i + q (j + q l): weight lines vary i,
// input lines j, output lines l.
struct CubeProduct {
  int64_t q = 1;
  int64_t m = 0;
  int64_t k = 0;
  int64_t n = 0;

  // InvalidArgument unless q^2 divides M and N, and q divides K.
  absl::Status Validate() const;
  // Rows and columns that a device holds of A, B and C.
  std::array<int64_t, 2> ShardOfA() const { return {m / (q * q), k / q}; }
  std::array<int64_t, 2> ShardOfB() const { return {k / q, n / (q * q)}; }
  std::array<int64_t, 2> ShardOfC() const { return {m / (q * q), n / q}; }
  // Elements that a device sends, forward; backward as many where gathered operands stay, else
  // twice.
  int64_t ForwardElements() const { return (q - 1) * (m * k + k * n + m * n) / (q * q * q); }
  // Of a bias or norm of N: pieces on the q^2 ranks of the diagonal, and what a rank uses.
  int64_t OwnedVectorElements() const { return n / (q * q); }
  int64_t UsedVectorElements() const { return n / q; }
};

// A gather or a scatter of one of the three products.
struct CubeCollective {
  absl::string_view op;      // "all_gather", "reduce_scatter"
  absl::string_view matrix;  // "A", "dC", ...
  absl::string_view line;    // "input", "weight", "output"
  int64_t shard_elements = 0;
  int64_t message_elements = 0;  // what is gathered, or what is scattered
  int64_t wire_elements = 0;
};
enum class CubeForm : uint8_t { kForward, kInputGradient, kWeightGradient };
std::array<CubeCollective, 3> CollectivesOf(const CubeProduct& product, CubeForm form);

// A way to cut the four matrices of a block: what a device sends forward and backward.
struct TensorFamily {
  std::string name;
  double forward_elements = 0;
  double backward_elements = 0;
  double depth_sum_elements = 0;  // of gradients over the depth of 2.5-D
  double total() const { return forward_elements + backward_elements + depth_sum_elements; }
};

// 1-D; 2-D, pipelined and hop by hop, where the devices are a square; 2.5-D of every q^2 d with q
// and d above 1; the cube, with operands kept and gathered again, where they are one. Of a plain
// transformer's block.
std::vector<TensorFamily> TensorFamilies(int64_t devices, int64_t tokens, int64_t hidden);

// Elements that a device sends in a block on c, r, z: forward, and backward without recomputation.
struct BlockElements {
  double forward = 0;
  double backward = 0;
  double total() const { return forward + backward; }
};
BlockElements ElementsOnGrid(const Grid& grid, int64_t tokens, int64_t hidden);
// The grid of powers of two that sends least; of equal ones the first by c, r, z.
Grid LeastElementsGrid(int64_t tensor_degree, int64_t tokens, int64_t hidden);

// The closed form of that minimum over real sizes, for equal rates:
//   c = (T h / 2m)^(1/3), r = 3 c, z = (2m / 3h) c,
// and where c would be below 1: c = 1, r = sqrt(4.5 h T / m) but at least 1, z = T / r.
struct GridSeed {
  double c = 1;
  double r = 1;
  double z = 1;
  // From as many tokens on depth alone sends least.
  double depth_tokens = 0;
};
GridSeed SeedOf(int64_t tensor_degree, int64_t tokens, int64_t hidden);

}  // namespace crossmesh
