#include "worker/gpu/communicators/testing/host_elements.h"

#include "common/base/check.h"
#include "common/numbers/number_formats.h"

#include <bit>
#include <cstring>

namespace crossmesh {
namespace {

// How a type is stored, and what to do with it.
template <typename Stored>
struct Plain {
  using Word = Stored;
  static double ToNumber(Word word) { return static_cast<double>(word); }
  static Word FromNumber(double value) { return static_cast<Word>(value); }
};

template <typename Format>
struct Narrow {
  using Word = typename Format::Word;
  static double ToNumber(Word word) { return std::bit_cast<float>(Format::Widen(word)); }
  static Word FromNumber(double value) {
    return Format::Narrow(std::bit_cast<uint32_t>(static_cast<float>(value)));
  }
};

template <typename Function>
auto WithFormat(DataType type, Function function) {
  switch (type) {
    case DataType::kU8:
      return function(Plain<uint8_t>());
    case DataType::kI8:
      return function(Plain<int8_t>());
    case DataType::kF16:
      return function(Narrow<F16>());
    case DataType::kBF16:
      return function(Narrow<Bf16>());
    case DataType::kI32:
      return function(Plain<int32_t>());
    case DataType::kU32:
      return function(Plain<uint32_t>());
    case DataType::kF32:
      return function(Plain<float>());
    case DataType::kI64:
      return function(Plain<int64_t>());
    case DataType::kU64:
      return function(Plain<uint64_t>());
    case DataType::kF64:
      return function(Plain<double>());
    case DataType::kBool:
    case DataType::kI16:
    case DataType::kU16:
    case DataType::kF8E5M2:
    case DataType::kF8E4M3:
      break;
  }
  CHECK(false) << type << " is not a number here";
  return function(Plain<uint8_t>());
}

}  // namespace

double ReadElement(DataType type, const std::byte* memory, int64_t index) {
  return WithFormat(type, [&](auto format) {
    typename decltype(format)::Word word;
    std::memcpy(&word, memory + index * sizeof(word), sizeof(word));
    return format.ToNumber(word);
  });
}

void WriteElement(DataType type, std::byte* memory, int64_t index, double value) {
  WithFormat(type, [&](auto format) {
    const auto word = format.FromNumber(value);
    std::memcpy(memory + index * sizeof(word), &word, sizeof(word));
  });
}

}  // namespace crossmesh
