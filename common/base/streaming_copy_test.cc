#include "common/base/streaming_copy.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr std::byte kUntouched{0xAA};

// Copies from one odd place to another and looks at every byte, those around the copy included.
void ExpectCopies(int64_t bytes, int64_t from_offset, int64_t to_offset) {
  std::vector<std::byte> from(bytes + 256);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 251);
  std::vector<std::byte> to(bytes + 256, kUntouched);
  CopyStreaming(to.data() + to_offset, from.data() + from_offset, bytes);
  for (int64_t i = 0; i < static_cast<int64_t>(to.size()); ++i) {
    const bool inside = i >= to_offset && i < to_offset + bytes;
    ASSERT_EQ(to[i], inside ? from[i - to_offset + from_offset] : kUntouched)
        << "byte " << i << " of " << bytes << " from " << from_offset << " to " << to_offset;
  }
}

TEST(StreamingCopyTest, CopiesEveryByteAndNoOtherAtAnyAlignment) {
  for (const int64_t bytes : {0, 1, 63, 64, 1023, 1024, 1025, 1024 + 63, 1536, 100'003}) {
    for (const int64_t from_offset : {0, 1, 16, 63}) {
      for (const int64_t to_offset : {0, 1, 32, 63, 64}) {
        ExpectCopies(bytes, from_offset, to_offset);
      }
    }
  }
}

}  // namespace
}  // namespace crossmesh
