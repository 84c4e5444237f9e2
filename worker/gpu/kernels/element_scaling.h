// What elements are multiplied with between their two formats: nothing, or the factor of the scale
// block that they are in.

#pragma once

#include "common/numbers/number_formats.h"
#include "worker/gpu/kernels/device_code.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstdint>

namespace crossmesh {

inline constexpr int kScaleBlock = 128;  // kScaleBlockLength of common/mesh/conversion.h

CROSSMESH_DEVICE constexpr int64_t ScaleBlocks(int64_t elements) {
  return (elements + kScaleBlock - 1) / kScaleBlock;
}

struct Unscaled {
  static constexpr bool kHasFactor = false;

  // What a cursor keeps of a row of a box.
  struct OfRow {
    CROSSMESH_DEVICE static OfRow In(const KernelBox& /*box*/) { return {}; }
    // Of the elements at a column.
    CROSSMESH_DEVICE Unscaled At(int32_t /*column*/) const { return {}; }
  };
  // How many of a row's last `row_left` elements, from `column` on, are multiplied alike.
  CROSSMESH_DEVICE static int32_t AlikeOf(int32_t row_left, int32_t /*column*/) { return row_left; }
  // A number of f32, as bits.
  CROSSMESH_DEVICE uint32_t Scale(uint32_t bits) const { return bits; }
};

struct BlockFactor {
  static constexpr bool kHasFactor = true;

  struct OfRow {
    CROSSMESH_DEVICE static OfRow In(const KernelBox& box) { return {box.factors_address}; }
    CROSSMESH_DEVICE BlockFactor At(int32_t column) const {
      constexpr uint64_t kFactorBytes = sizeof(float);
      return {LoadAligned<float>(factors_address + Unsigned(column) / kScaleBlock * kFactorBytes)};
    }

    uint64_t factors_address;
  };
  CROSSMESH_DEVICE static int32_t AlikeOf(int32_t row_left, int32_t column) {
    return Min(row_left, static_cast<int32_t>(kScaleBlock - Unsigned(column) % kScaleBlock));
  }
  CROSSMESH_DEVICE uint32_t Scale(uint32_t bits) const { return BitsOf(FloatOf(bits) * factor); }

  float factor;

 private:
  // Of which a quotient by a power of two is a shift.
  CROSSMESH_DEVICE static uint32_t Unsigned(int32_t column) {
    return static_cast<uint32_t>(column);
  }
};

}  // namespace crossmesh
