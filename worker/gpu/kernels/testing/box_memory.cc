#include "worker/gpu/kernels/testing/box_memory.h"

#include <algorithm>
#include <cstring>

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

BoxMemory::BoxMemory(const BoxMemoryOptions& options, RandomSource& random) {
  int64_t place = 0;
  while (packed_bytes < options.packed_bytes) {
    // Most boxes begin at a multiple of 16, as most tensors do.
    if (!random.OneIn(4)) place = (place + 15) / 16 * 16;
    place += RandomGap(options.memory_bytes, random);
    const int64_t elements = RandomRowElements(options.memory_bytes, random);
    KernelBox box = {.address = static_cast<uint64_t>(place),
                     .row_bytes = elements * options.memory_bytes,
                     .packed_offset = packed_bytes};
    const int64_t left = (options.packed_bytes - packed_bytes) / options.packed_element_bytes;
    box.rows = random.Between(1, std::clamp<int64_t>(left / elements, 1, 600));
    box.pitch_bytes = box.row_bytes + RandomGap(options.memory_bytes, random);
    place += box.rows * box.pitch_bytes;
    packed_bytes += box.rows * elements * options.packed_element_bytes;
    boxes.push_back(box);
  }
  memory = KernelMemory(place, random);
  for (KernelBox& box : boxes) box.address += memory.address();
}

}  // namespace crossmesh
