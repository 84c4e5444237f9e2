#include "planner/parallelism/product_prices.h"

#include <bit>
#include <cstdint>

namespace crossmesh {

// Sizes are mostly powers of two, and all that these differ in are the high bits of a double: odd
// factors keep those apart, of one of the sizes and of all three.
size_t ProductPrices::PlaceOf(const ProductSize& layer) {
  constexpr uint64_t kFactors[] = {0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9};
  const uint64_t mixed = std::bit_cast<uint64_t>(layer.m) * kFactors[0] +
                         std::bit_cast<uint64_t>(layer.n) * kFactors[1] +
                         std::bit_cast<uint64_t>(layer.k) * kFactors[2];
  static_assert(std::has_single_bit(kEntries));
  return mixed >> (64 - std::countr_zero(kEntries));
}

}  // namespace crossmesh
