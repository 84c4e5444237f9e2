// Elements of the types that NCCL adds, as numbers.

#pragma once

#include "common/mesh/data_type.h"
#include "common/numbers/number_formats.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <gtest/gtest.h>

namespace crossmesh {

// Calls `visit` with how an element of a type is read, and how it is written.
template <typename Visit>
void WithFormat(DataType type, Visit visit) {
  const auto as_is = [&]<typename Number>(Number) {
    visit(
        [](const std::byte* from) {
          Number number;
          std::memcpy(&number, from, sizeof(number));
          return static_cast<double>(number);
        },
        [](double value, std::byte* to) {
          const auto number = static_cast<Number>(value);
          std::memcpy(to, &number, sizeof(number));
        });
  };
  const auto halves = [&]<class Format>(Format) {
    visit(
        [](const std::byte* from) {
          typename Format::Word word;
          std::memcpy(&word, from, sizeof(word));
          return static_cast<double>(FloatOf(Format::Widen(word)));
        },
        [](double value, std::byte* to) {
          const typename Format::Word word = Format::Narrow(BitsOf(static_cast<float>(value)));
          std::memcpy(to, &word, sizeof(word));
        });
  };
  switch (type) {
    case DataType::kF32:
      return as_is(float());
    case DataType::kF64:
      return as_is(double());
    case DataType::kI32:
      return as_is(int32_t());
    case DataType::kI64:
      return as_is(int64_t());
    case DataType::kU8:
      return as_is(uint8_t());
    case DataType::kBF16:
      return halves(Bf16());
    case DataType::kF16:
      return halves(F16());
    default:
      ADD_FAILURE() << "no sums of " << DataTypeName(type);
  }
}

// Of one rounding, relative.
inline double RoundingOf(DataType type) {
  switch (type) {
    case DataType::kF32:
      return std::ldexp(1, -24);
    case DataType::kF64:
      return std::ldexp(1, -53);
    case DataType::kBF16:
      return std::ldexp(1, -8);
    case DataType::kF16:
      return std::ldexp(1, -11);
    default:
      return 0;
  }
}

}  // namespace crossmesh
