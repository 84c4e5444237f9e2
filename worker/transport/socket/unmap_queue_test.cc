#include "worker/transport/socket/unmap_queue.h"

#include "worker/transport/testing/sealed_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace crossmesh {
namespace {

std::span<std::byte> Map(const SealedMemory& memory) {
  void* mapping = mmap(nullptr, memory.bytes().size(), PROT_READ, MAP_SHARED, memory.fd(), 0);
  EXPECT_NE(mapping, MAP_FAILED);
  return {static_cast<std::byte*>(mapping), memory.bytes().size()};
}

TEST(UnmapQueueTest, SmallMappingsGoAtOnce) {
  const auto memory = SealedMemory::Create(5000);
  UnmapQueue queue;
  queue.Add(Map(*memory));
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(SealedMemory::CountMappings(), 1);
}

TEST(UnmapQueueTest, LargeOnesGoInSteps) {
  const auto memory = SealedMemory::Create((40 << 20) + 1);
  UnmapQueue queue;
  queue.Add(Map(*memory));
  EXPECT_EQ(SealedMemory::CountMappings(), 2);
  queue.Step();
  EXPECT_FALSE(queue.empty());
  queue.Step();
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(SealedMemory::CountMappings(), 1);
}

// The end first, so that what is left is whole steps.
TEST(UnmapQueueTest, AStepIsAtMost16MiB) {
  for (const size_t more : {0U, 1U}) {
    const auto memory = SealedMemory::Create((32 << 20) + more);
    UnmapQueue queue;
    queue.Add(Map(*memory));
    for (size_t i = 0; i < more; ++i) queue.Step();
    EXPECT_FALSE(queue.empty());
    queue.Step();
    EXPECT_TRUE(queue.empty());
    EXPECT_EQ(SealedMemory::CountMappings(), 1);
  }
}

TEST(UnmapQueueTest, NothingStays) {
  const auto memory = SealedMemory::Create(100 << 20);
  {
    UnmapQueue queue;
    queue.Add(Map(*memory));
    queue.Add(Map(*memory));
  }
  EXPECT_EQ(SealedMemory::CountMappings(), 1);
}

}  // namespace
}  // namespace crossmesh
