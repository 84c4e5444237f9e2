#include "worker/gpu/kernels/testing/reference_kernels.h"

#include "common/base/check.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <xxhash.h>

namespace crossmesh {
namespace {

// A binary floating point format with infinities where `infinite`, else saturating.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool infinite;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int sign_bit() const { return exponent_bits + mantissa_bits; }
  uint32_t nan() const { return (1U << sign_bit()) - 1; }
};

constexpr Format kF32 = {.exponent_bits = 8, .mantissa_bits = 23, .infinite = true};
constexpr Format kBf16 = {.exponent_bits = 8, .mantissa_bits = 7, .infinite = true};
constexpr Format kF16 = {.exponent_bits = 5, .mantissa_bits = 10, .infinite = true};
constexpr Format kFp8 = {.exponent_bits = 4, .mantissa_bits = 3, .infinite = false};
constexpr double kFp8Largest = 448;

Format FormatOf(DataType type) {
  CHECK(type == DataType::kF32 || type == DataType::kBF16 || type == DataType::kF16) << type;
  return type == DataType::kF32 ? kF32 : type == DataType::kBF16 ? kBf16 : kF16;
}

// Every finite value of the formats is a double.
double Decode(const Format& format, uint32_t bits) {
  const int mantissa = static_cast<int>(bits & ((1U << format.mantissa_bits) - 1));
  const int exponent =
      static_cast<int>(bits >> format.mantissa_bits & ((1U << format.exponent_bits) - 1));
  const double sign = (bits >> format.sign_bit() & 1) != 0 ? -1 : 1;
  if (format.infinite && exponent == (1 << format.exponent_bits) - 1) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  const int implicit = exponent > 0 ? 1 << format.mantissa_bits : 0;
  return sign * std::ldexp(mantissa + implicit,
                           std::max(exponent, 1) - format.bias() - format.mantissa_bits);
}

uint32_t Encode(const Format& format, double value) {
  if (std::isnan(value)) return format.nan();
  const uint32_t sign = std::signbit(value) ? 1U << format.sign_bit() : 0;
  double magnitude = std::abs(value);
  if (!format.infinite) magnitude = std::min(magnitude, kFp8Largest);
  const uint32_t infinity = ((1U << format.exponent_bits) - 1) << format.mantissa_bits;
  if (std::isinf(magnitude)) return sign | infinity;
  if (magnitude == 0) return sign;
  const int exponent = std::max(std::ilogb(magnitude), 1 - format.bias());
  // In steps of the format; nearbyint rounds ties to even.
  const double steps = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  // A subnormal has field 0 and no implicit bit, which the sum takes care of.
  const auto field = static_cast<uint32_t>(exponent + format.bias() - 1);
  const uint32_t bits = (field << format.mantissa_bits) + static_cast<uint32_t>(steps);
  return sign | (format.infinite ? std::min(bits, infinity) : bits);
}

std::byte* At(uint64_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

template <typename T>
T Read(uint64_t address) {
  T value;
  std::memcpy(&value, At(address), sizeof(T));
  return value;
}

void Write(uint64_t address, float value) { std::memcpy(At(address), &value, sizeof(value)); }

// An element of bf16 at a column of a box with factors.
uint32_t QuantizeOneOnCpu(const KernelBox& box, int64_t column, uint32_t bits) {
  const auto factor = Read<float>(box.factors_address + column / 128 * sizeof(float));
  return Fp8OnCpu(static_cast<float>(Decode(kBf16, bits)) * factor);
}

// The largest finite magnitude of the block that begins at this row and column.
float AmaxOf(const ScaledMatrix& matrix, int64_t row_begin, int64_t column_begin) {
  double amax = 0;
  for (int64_t row = row_begin; row < std::min(row_begin + 128, matrix.rows); ++row) {
    for (int64_t column = column_begin; column < std::min(column_begin + 128, matrix.columns);
         ++column) {
      const auto bits = Read<uint16_t>(matrix.address + row * matrix.pitch_bytes + column * 2);
      const double magnitude = std::abs(Decode(kBf16, bits));
      if (std::isfinite(magnitude)) amax = std::max(amax, magnitude);
    }
  }
  return static_cast<float>(std::max(amax, std::ldexp(1.0, -100)));
}

}  // namespace

std::vector<std::byte> PackOnCpu(std::span<const KernelBox> boxes, DataType from, DataType to) {
  int64_t elements = 0;
  for (const KernelBox& box : boxes) elements += box.rows * box.row_bytes / ItemBytes(from);
  std::vector<std::byte> packed(elements * ItemBytes(to));
  std::byte* end = packed.data();
  for (const KernelBox& box : boxes) {
    for (int64_t row = 0; row < box.rows; ++row) {
      const std::byte* begin = At(box.address + row * box.pitch_bytes);
      if (from == to) {
        std::memcpy(end, begin, box.row_bytes);
        end += box.row_bytes;
        continue;
      }
      for (int64_t at = 0; at < box.row_bytes; at += ItemBytes(from)) {
        uint32_t bits = 0;
        std::memcpy(&bits, begin + at, ItemBytes(from));
        bits = to == DataType::kF8E4M3 ? QuantizeOneOnCpu(box, at / ItemBytes(from), bits)
                                       : ConvertOnCpu(from, to, bits);
        std::memcpy(end, &bits, ItemBytes(to));
        end += ItemBytes(to);
      }
    }
  }
  return packed;
}

void UnpackOnCpu(std::span<const KernelBox> boxes, std::span<const std::byte> packed) {
  for (const KernelBox& box : boxes) {
    for (int64_t row = 0; row < box.rows; ++row) {
      std::memcpy(At(box.address + row * box.pitch_bytes),
                  &packed[box.packed_offset + row * box.row_bytes], box.row_bytes);
    }
  }
}

void CopyOnCpu(std::span<const KernelBox> sources, std::span<const KernelBox> destinations,
               Interval range, const Conversion& conversion) {
  const std::vector<std::byte> packed = PackOnCpu(sources, conversion.from, conversion.to);
  std::vector<std::byte> held = PackOnCpu(destinations, DataType::kU8, DataType::kU8);
  std::copy(packed.begin() + range.begin, packed.begin() + range.end, held.begin() + range.begin);
  UnpackOnCpu(destinations, held);
}

std::vector<uint64_t> LeafHashesOnCpu(std::span<const std::byte> packed) {
  std::vector<uint64_t> hashes;
  for (size_t begin = 0; begin < packed.size(); begin += 65536) {
    hashes.push_back(XXH3_64bits(&packed[begin], std::min<size_t>(65536, packed.size() - begin)));
  }
  return hashes;
}

uint32_t ConvertOnCpu(DataType from, DataType to, uint32_t bits) {
  const Format source = FormatOf(from);
  const double value = Decode(source, bits);
  if (std::isnan(value) && to == DataType::kF32) {
    // Sign and payload are kept, at the upper end.
    const uint32_t sign = bits >> source.sign_bit() << 31;
    return sign | 0x7F800000 |
           (bits & ((1U << source.mantissa_bits) - 1)) << (23 - source.mantissa_bits);
  }
  return Encode(FormatOf(to), value);
}

uint8_t Fp8OnCpu(double value) { return static_cast<uint8_t>(Encode(kFp8, value)); }

void ScaleOnCpu(std::span<const ScaledMatrix> matrices) {
  for (const ScaledMatrix& matrix : matrices) {
    for (int64_t row = 0; row < matrix.rows; row += 128) {
      for (int64_t column = 0; column < matrix.columns; column += 128) {
        const float amax = AmaxOf(matrix, row, column);
        const uint64_t offset = row / 128 * matrix.scales_pitch_bytes + column / 128 * 4;
        Write(matrix.scales_address + offset, amax / 448.0F);
        Write(matrix.factors_address + offset, 448.0F / amax);
      }
    }
  }
}

}  // namespace crossmesh
