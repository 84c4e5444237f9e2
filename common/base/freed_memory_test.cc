#include "common/base/freed_memory.h"

#include "common/testing/allocations/count_allocations.h"

#include <cstddef>
#include <cstring>
#include <memory>

#include <gtest/gtest.h>
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
  std::memset(array.get(), 1, kBytes);
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  return after.ru_minflt - before.ru_minflt;
}

TEST(KeepFreedMemoryTest, TheNextArrayTakesNoPagesFromTheSystem) {
  if (!CanCountAllocations()) GTEST_SKIP() << "a sanitizer's own allocator";
  EXPECT_GE(PagesToFillAnArray(), long{kBytes / kPageBytes} / 2);
  KeepFreedMemory();
  PagesToFillAnArray();
  EXPECT_LE(PagesToFillAnArray(), 16);
}

}  // namespace
}  // namespace crossmesh
