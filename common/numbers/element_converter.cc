#include "common/numbers/element_converter.h"

#include "common/base/check.h"
#include "common/numbers/number_formats.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace crossmesh {
namespace {

template <class From, class To>
void Convert(const std::byte* from, std::byte* to, int64_t bytes) {
  using Read = typename From::Word;
  using Written = typename To::Word;
  const auto elements = bytes / static_cast<int64_t>(sizeof(Written));
  for (int64_t i = 0; i < elements; ++i) {
    Read read;
    std::memcpy(&read, from + i * sizeof(Read), sizeof(Read));
    const Written written = To::Narrow(From::Widen(read));
    std::memcpy(to + i * sizeof(Written), &written, sizeof(Written));
  }
}

struct Entry {
  Conversion conversion;
  ElementConverter converter;
};

constexpr std::array<Entry, 6> kEntries = {{
    {{DataType::kF32, DataType::kF16}, Convert<F32, F16>},
    {{DataType::kF32, DataType::kBF16}, Convert<F32, Bf16>},
    {{DataType::kF16, DataType::kF32}, Convert<F16, F32>},
    {{DataType::kF16, DataType::kBF16}, Convert<F16, Bf16>},
    {{DataType::kBF16, DataType::kF32}, Convert<Bf16, F32>},
    {{DataType::kBF16, DataType::kF16}, Convert<Bf16, F16>},
}};

}  // namespace

ElementConverter ConverterFor(const Conversion& conversion) {
  const auto entry = std::ranges::find(kEntries, conversion, &Entry::conversion);
  CHECK(entry != kEntries.end()) << conversion.from << " as " << conversion.to;
  return entry->converter;
}

}  // namespace crossmesh
