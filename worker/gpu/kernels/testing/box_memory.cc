#include "worker/gpu/kernels/testing/box_memory.h"

#include "common/numbers/number_formats.h"
#include "worker/gpu/kernels/element_scaling.h"

#include <algorithm>
#include <cmath>

namespace crossmesh {
namespace {

// Elements of a row: a few, those of common shapes, or many.
int64_t RandomRowElements(int64_t element_bytes, RandomSource& random) {
  switch (random.Below(5)) {
    case 0:
      return random.Between(1, 20);
    case 1:
      return 512 / element_bytes;
    case 2:
      return 4096 / element_bytes;
    case 3:
      return random.Between(1, 2000);
    default:
      return random.Between(1, 40'000);
  }
}

// Zero, or such that the address is a multiple of nothing but the element's size.
int64_t RandomGap(int64_t element_bytes, RandomSource& random) {
  return random.OneIn(2) ? 0 : random.Below(40) * element_bytes;
}

}  // namespace

KernelMemory::KernelMemory(int64_t bytes, RandomSource& random)
    : bytes_(bytes), granules_((bytes + 15) / 16 + 2) {
  for (Uint128& granule : granules_) {
    const auto half = [&random] { return static_cast<uint64_t>(random.Between(0, INT64_MAX - 1)); };
    granule = Uint128{half() << 1} << 64 | half() << 1;
    // The bits that are lost above: signs of half of all elements, and the lowest ones.
    if (random.OneIn(2)) granule = ~granule;
  }
}

std::vector<std::byte> KernelMemory::Copy() const {
  const auto* begin = reinterpret_cast<const std::byte*>(granules_.data());
  return {begin, begin + granules_.size() * sizeof(Uint128)};
}

void MakeOrdinary(KernelMemory& memory, RandomSource& random) {
  for (std::byte& byte : memory.bytes()) {
    if (reinterpret_cast<uint64_t>(&byte) % 2 == 0) continue;
    byte = (byte & std::byte{0x81}) | std::byte{0x3C};
    if (random.OneIn(5000)) byte |= std::byte{0x7F};
  }
}

BoxMemory::BoxMemory(const BoxMemoryOptions& options, RandomSource& random) {
  const int64_t memory_item_bytes = ItemBytes(options.types.from);
  const int64_t packed_item_bytes = ItemBytes(options.types.to);
  int64_t place = 0;
  while (packed_bytes < options.packed_bytes) {
    // Most boxes begin at a multiple of 16, as most tensors do.
    if (!random.OneIn(4)) place = (place + 15) / 16 * 16;
    place += RandomGap(memory_item_bytes, random);
    const int64_t elements = RandomRowElements(memory_item_bytes, random);
    KernelBox box = {.address = static_cast<uint64_t>(place),
                     .row_bytes = elements * memory_item_bytes,
                     .packed_offset = packed_bytes};
    const int64_t left = (options.packed_bytes - packed_bytes) / packed_item_bytes;
    box.rows = random.Between(1, std::clamp<int64_t>(left / elements, 1, 600));
    box.pitch_bytes = box.row_bytes + RandomGap(memory_item_bytes, random);
    place += box.rows * box.pitch_bytes;
    packed_bytes += box.rows * elements * packed_item_bytes;
    boxes.push_back(box);
  }
  memory = KernelMemory(place, random);
  for (KernelBox& box : boxes) box.address += memory.address();
  if (options.types.to == DataType::kF8E4M3) AddFactors(random);
}

void BoxMemory::AddFactors(RandomSource& random) {
  const auto bytes_of = [](const KernelBox& box) {
    return ScaleBlocks(box.row_bytes / ItemBytes(DataType::kBF16)) *
           static_cast<int64_t>(sizeof(float));
  };
  int64_t bytes = 0;
  for (const KernelBox& box : boxes) bytes += bytes_of(box);
  factors = KernelMemory(bytes, random);
  uint64_t place = factors.address();
  for (KernelBox& box : boxes) {
    box.factors_address = place;
    place += bytes_of(box);
  }
  if (random.OneIn(3)) return;
  // Not bits of all kinds, but such that most elements can be told apart.
  MakeOrdinary(memory, random);
  for (uint64_t at = factors.address(); at < place; at += sizeof(float)) {
    const auto exponent = static_cast<int>(random.Between(4, 10));
    StoreAligned(at, std::ldexp(1 + static_cast<float>(random.Below(99)) / 99, exponent));
  }
}

std::vector<std::span<std::byte>> BoxMemory::regions() {
  if (factors.bytes().empty()) return {memory.whole()};
  return {memory.whole(), factors.whole()};
}

Interval RandomRange(int64_t packed_bytes, int64_t item_bytes, RandomSource& random) {
  const int64_t items = packed_bytes / item_bytes;
  const int64_t begin = random.OneIn(3) ? 0 : random.Below(items);
  const int64_t end = random.OneIn(3) ? items : random.Between(begin + 1, items);
  return {.begin = begin * item_bytes, .end = end * item_bytes};
}

}  // namespace crossmesh
