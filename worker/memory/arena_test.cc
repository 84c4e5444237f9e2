#include "worker/memory/arena.h"

#include "common/testing/status_matchers.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
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

int64_t ResidentBytes(const Arena& arena) {
  struct stat found = {};
  EXPECT_EQ(fstat(arena.fd(), &found), 0);
  return found.st_blocks * 512;
}

TEST(Arena, WholePagesAreGivenBackForAllWhoMapThem) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  ASSERT_OK_AND_ASSIGN(const auto arena, Arena::Create("test", ByteCount(8 * page)));
  EXPECT_TRUE(arena->can_release());
  std::memset(arena->bytes().data(), 7, arena->bytes().size());
  void* other = mmap(nullptr, 8 * page, PROT_READ, MAP_SHARED, arena->fd(), 0);
  ASSERT_NE(other, MAP_FAILED);
  const auto* const bytes = static_cast<const std::byte*>(other);
  EXPECT_EQ(bytes[3 * page], std::byte{7});
  EXPECT_EQ(ResidentBytes(*arena), 8 * page);
  // Pages 3 and 4; parts of pages 2 and 5 stay.
  ASSERT_OK(ReleasePages(arena->bytes().subspan(3 * page - 1, 2 * page + 2)));
  EXPECT_EQ(ResidentBytes(*arena), 6 * page);
  EXPECT_EQ(bytes[3 * page - 1], std::byte{7});
  EXPECT_EQ(bytes[5 * page], std::byte{7});
  EXPECT_EQ(bytes[3 * page], std::byte{0});
  EXPECT_EQ(bytes[5 * page - 1], std::byte{0});
  ASSERT_OK(ReleasePages(arena->bytes().subspan(1, page)));
  EXPECT_EQ(bytes[page - 1], std::byte{7});
  munmap(other, 8 * page);
}

TEST(Arena, MemoryOfOthersIsNotGivenBack) {
  std::array<std::byte, 64> memory = {};
  EXPECT_FALSE(Arena::Borrow(memory)->can_release());
}

}  // namespace
}  // namespace crossmesh
