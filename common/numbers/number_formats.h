// Floating point formats as bits, and their conversions through f32: all of f16 and bf16 fit in it.
//
// Narrowing rounds to the nearest, ties to even. To f16 and bf16, what is too large becomes
// infinite; to fp8 (e4m3, which has no infinity) it saturates at 448. A NaN stays one: widening
// keeps its sign and payload, narrowing gives the one that GPUs give, all bits but the sign set
// (0x7FFF, for fp8 0x7F). Signs of zeros are kept.

#pragma once

#include "common/numbers/device_function.h"

#include <cstdint>
#include <cstring>

namespace crossmesh {

inline constexpr uint32_t kF32Magnitude = 0x7FFFFFFF;  // all but the sign
inline constexpr uint32_t kF32Infinity = 0x7F800000;
inline constexpr float kFp8Max = 448.0F;
// The least amax of a scale block, 2^-100: its inverse and what is divided by it stay far from the
// ends of f32.
inline constexpr float kAmaxMin = 0x1p-100F;

CROSSMESH_DEVICE inline float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

CROSSMESH_DEVICE inline uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

namespace internal {

// Rounds a non-negative f32 to a format with `mantissa_bits` and the least normal exponent
// `exponent_min`, as the format's bits. What the format can not hold must not come.
//
// Adding a number whose unit in the last place is the format's step makes the processor round.
template <int mantissa_bits, int exponent_min>
CROSSMESH_DEVICE inline uint32_t RoundMagnitude(uint32_t bits) {
  constexpr int kDropped = 23 - mantissa_bits;
  constexpr uint32_t kLowest = (127 + exponent_min + kDropped) << 23;
  const uint32_t exponent = bits & kF32Infinity;
  const uint32_t above = exponent + (uint32_t{kDropped} << 23);
  const uint32_t shifter = above < kLowest ? kLowest : above;
  const uint32_t steps = BitsOf(FloatOf(bits) + FloatOf(shifter)) - shifter;
  return steps + ((shifter - kLowest) >> kDropped);
}

}  // namespace internal

struct F32 {
  using Word = uint32_t;
  CROSSMESH_DEVICE static uint32_t Widen(Word word) { return word; }
  CROSSMESH_DEVICE static Word Narrow(uint32_t bits) { return bits; }
};

struct Bf16 {
  using Word = uint16_t;
  CROSSMESH_DEVICE static uint32_t Widen(Word word) { return uint32_t{word} << 16; }
  CROSSMESH_DEVICE static Word Narrow(uint32_t bits) {
    const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    return static_cast<Word>((bits & kF32Magnitude) > kF32Infinity ? 0x7FFF : rounded);
  }
};

struct F16 {
  using Word = uint16_t;
  CROSSMESH_DEVICE static uint32_t Widen(Word word) {
    const uint32_t sign = (word & 0x8000U) << 16;
    const uint32_t shifted = (word & 0x7FFFU) << 13;
    if (shifted >= 0x7C00U << 13) return sign | kF32Infinity | shifted;
    // The exponent's bias grows from 15 to 127; exact, for subnormal numbers as well.
    constexpr uint32_t kBias = (127 + 112) << 23;
    return sign | BitsOf(FloatOf(shifted) * FloatOf(kBias));
  }
  CROSSMESH_DEVICE static Word Narrow(uint32_t bits) {
    constexpr uint32_t kTooLarge = 0x477FF000;  // 65520, half a step behind the largest
    const uint32_t magnitude = bits & kF32Magnitude;
    const uint32_t sign = (bits ^ magnitude) >> 16;
    if (magnitude > kF32Infinity) return 0x7FFF;
    if (magnitude >= kTooLarge) return static_cast<Word>(sign | 0x7C00);
    return static_cast<Word>(sign | internal::RoundMagnitude<10, -14>(magnitude));
  }
};

// fp8, e4m3: no infinity, 0x7F and 0xFF are NaN, the largest is 448. Narrowing saturates.
struct Fp8 {
  using Word = uint8_t;
  CROSSMESH_DEVICE static Word Narrow(uint32_t bits) {
    const uint32_t magnitude = bits & kF32Magnitude;
    const uint32_t sign = (bits ^ magnitude) >> 24;
    // Bits of non-negative numbers compare as the numbers do.
    const uint32_t saturated = magnitude < BitsOf(kFp8Max) ? magnitude : BitsOf(kFp8Max);
    const uint32_t rounded = sign | internal::RoundMagnitude<3, -6>(saturated);
    return static_cast<Word>(magnitude > kF32Infinity ? 0x7F : rounded);
  }
};

}  // namespace crossmesh
