#include "common/base/row_copy.h"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr std::byte kUntouched{0xAA};

// Copies from one odd place to another and looks at every byte, those around the copy included.
void ExpectCopies(size_t bytes, size_t from_offset, size_t to_offset) {
  std::vector<std::byte> from(bytes + 128);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 251);
  std::vector<std::byte> to(bytes + 128, kUntouched);
  CopyRow(to.data() + to_offset, from.data() + from_offset, bytes);
  for (size_t i = 0; i < to.size(); ++i) {
    const bool inside = i >= to_offset && i < to_offset + bytes;
    ASSERT_EQ(to[i], inside ? from[i - to_offset + from_offset] : kUntouched)
        << "byte " << i << " of " << bytes << " from " << from_offset << " to " << to_offset;
  }
}

TEST(RowCopyTest, CopiesEveryByteAndNoOtherAtAnyAlignment) {
  for (const size_t bytes : {0, 1, 1023, 1024, 1025, 1536, 3071, 4095, 4096, 20'000}) {
    for (const size_t from_offset : {0, 1, 16, 63}) {
      for (const size_t to_offset : {0, 1, 32, 63}) ExpectCopies(bytes, from_offset, to_offset);
    }
  }
}

TEST(RowCopyTest, FetchingLooksAtNothing) {
  const std::byte row{7};
  FetchRow(&row);
  FetchRow(nullptr);
}

}  // namespace
}  // namespace crossmesh
