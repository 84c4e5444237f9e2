#include "worker/memory/arena.h"

#include "common/testing/status_matchers.h"

#include <array>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

TEST(Arena, IsZeroFilledAndWritable) {
  ASSERT_OK_AND_ASSIGN(const auto arena, Arena::Create("test", ByteCount(100'000)));
  ASSERT_EQ(arena->bytes().size(), 100'000U);
  for (const std::byte b : arena->bytes()) ASSERT_EQ(b, std::byte{0});
  std::memset(arena->bytes().data(), 7, arena->bytes().size());
}

TEST(Arena, CanBeMappedByItsDescriptor) {
  ASSERT_OK_AND_ASSIGN(const auto arena, Arena::Create("test", ByteCount(4096)));
  void* other = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, arena->fd(), 0);
  ASSERT_NE(other, MAP_FAILED);
  arena->bytes()[17] = std::byte{42};
  EXPECT_EQ(static_cast<const std::byte*>(other)[17], std::byte{42});
  munmap(other, 4096);
}

TEST(Arena, NoProcessCanShrinkIt) {
  ASSERT_OK_AND_ASSIGN(const auto arena, Arena::Create("test", ByteCount(4096)));
  EXPECT_NE(ftruncate(arena->fd(), 0), 0);
}

TEST(Arena, MayBeEmpty) {
  ASSERT_OK_AND_ASSIGN(const auto arena, Arena::Create("test", ByteCount(0)));
  EXPECT_TRUE(arena->bytes().empty());
}

TEST(Arena, TakesALongName) { EXPECT_OK(Arena::Create(std::string(1000, 'x'), ByteCount(1))); }

TEST(Arena, SaysHowMuchMemoryLacks) {
  EXPECT_THAT(Arena::Create("vast", ByteCount(int64_t{1} << 60)),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("1152921504606846976")));
}

TEST(Arena, BorrowsMemoryThatItDoesNotFree) {
  std::array<std::byte, 16> memory;
  const auto arena = Arena::Borrow(memory);
  EXPECT_EQ(arena->bytes().data(), memory.data());
  EXPECT_EQ(arena->fd(), -1);
}

}  // namespace
}  // namespace crossmesh
