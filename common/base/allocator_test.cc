#include "common/base/allocator.h"

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include <absl/time/time.h>
#include <gtest/gtest.h>
#include <jemalloc/jemalloc.h>
#include <sched.h>
#include <sys/resource.h>

namespace crossmesh {
namespace {

constexpr size_t kBytes = size_t{64} << 20;
constexpr size_t kPageBytes = 4096;

// Pages that the system gave this process while it filled an array.
long PagesToFillAnArray() {
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  const auto array = std::make_unique_for_overwrite<char[]>(kBytes);
  volatile char* const bytes = array.get();  // so that no compiler takes it away
  for (size_t page = 0; page < kBytes; page += kPageBytes) bytes[page] = 1;
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  return after.ru_minflt - before.ru_minflt;
}

TEST(AllocatorTest, HasAnArenaForEachProcessor) {
  cpu_set_t processors;
  ASSERT_EQ(sched_getaffinity(0, sizeof(processors), &processors), 0);
  unsigned arenas = 0;
  size_t size = sizeof(arenas);
  ASSERT_EQ(mallctl("opt.narenas", &arenas, &size, nullptr, 0), 0);
  EXPECT_EQ(arenas, CPU_COUNT(&processors));
}

TEST(AllocatedBytesTest, WhatAThreadHasFreedIsNotAllocatedThoughItMayKeepIt) {
  constexpr int kPieces = 200;
  constexpr size_t kPieceBytes = 1000;
  AllocatedBytes();  // takes memory itself, the first time
  const int64_t before = AllocatedBytes();
  {
    std::vector<std::unique_ptr<char[]>> pieces(kPieces);
    for (auto& piece : pieces) piece = std::make_unique<char[]>(kPieceBytes);
    EXPECT_GE(AllocatedBytes() - before, int64_t{kPieces * kPieceBytes});
  }
  EXPECT_NEAR(static_cast<double>(AllocatedBytes()), static_cast<double>(before), 8 << 10);
}

TEST(KeepFreedMemoryTest, TheNextArrayTakesNoPagesFromTheSystem) {
  EXPECT_GE(PagesToFillAnArray(), long{kBytes / kPageBytes} / 2);
  KeepFreedMemory();
  PagesToFillAnArray();
  EXPECT_LE(PagesToFillAnArray(), 16);
}

long ResidentMebibytes() {
  long mapped_pages = 0;
  long resident_pages = 0;
  std::ifstream("/proc/self/statm") >> mapped_pages >> resident_pages;
  return resident_pages * long{kPageBytes} >> 20;
}

// Takes so much in small pieces and frees them, but for the last one, so that the heap does not end
// with what is free.
std::unique_ptr<char[]> TakeAndFree(long mebibytes) {
  constexpr size_t kPieceBytes = 1 << 10;
  std::vector<std::unique_ptr<char[]>> pieces(mebibytes << 10);
  for (auto& piece : pieces) piece = std::make_unique<char[]>(kPieceBytes);
  return std::move(pieces.back());
}

TEST(FreedMemoryTest, AllGoesBackAboveHalfAGibibyte) {
  KeepFreedMemory();
  FreedMemory freed;
  const auto first = TakeAndFree(400);
  freed.GiveBack(absl::Hours(7));
  EXPECT_GE(ResidentMebibytes(), 400);
  const auto second = TakeAndFree(700);
  EXPECT_GE(ResidentMebibytes(), 700);
  freed.GiveBack(absl::Hours(7));
  EXPECT_LE(ResidentMebibytes(), 100);
}

TEST(FreedMemoryTest, AllGoesBackEveryHalfHour) {
  KeepFreedMemory();
  FreedMemory freed;
  for (const absl::Duration begin : {absl::Hours(7), absl::Minutes(450)}) {
    freed.GiveBack(begin);
    const auto last = TakeAndFree(200);
    freed.GiveBack(begin + absl::Minutes(29));
    EXPECT_GE(ResidentMebibytes(), 200);
    freed.GiveBack(begin + absl::Minutes(30));
    EXPECT_LE(ResidentMebibytes(), 100);
  }
}

}  // namespace
}  // namespace crossmesh
