#include "worker/transport/socket/byte_queue.h"
#include "worker/transport/socket/fifo.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Whether more is pushed than popped or the other way round changes now and then.
template <typename Push, typename Pop>
void PushAndPop(Push push, Pop pop) {
  std::mt19937_64 random(1);
  size_t size = 0;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 100 < (i / 1000 % 2 == 0 ? 70 : 30)) {
      push();
      ++size;
    } else if (size > 0) {
      pop();
      --size;
    }
  }
  for (; size > 0; --size) pop();
}

TEST(FifoTest, WhatIsPushedFirstIsPoppedFirst) {
  Fifo<int> fifo;
  int pushed = 0;
  int popped = 0;
  PushAndPop([&] { fifo.Push(pushed++); },
             [&] {
               ASSERT_EQ(fifo.front(), popped);
               ASSERT_EQ(fifo.size(), pushed - popped);
               ASSERT_EQ(fifo.Pop(), popped++);
             });
  EXPECT_TRUE(fifo.empty());
  EXPECT_GT(popped, 5000);
}

TEST(ByteQueueTest, BytesKeepTheirOrderAndAreCounted) {
  ByteQueue queue;
  uint32_t pushed = 0;
  uint32_t popped = 0;
  PushAndPop([&] { queue.PushObject(pushed++); },
             [&] {
               uint32_t front = 0;
               std::memcpy(&front, queue.bytes().data(), sizeof(front));
               ASSERT_EQ(front, popped++);
               queue.Pop(sizeof(front));
               ASSERT_EQ(queue.popped(), popped * sizeof(front));
               ASSERT_EQ(queue.pushed(), pushed * sizeof(front));
             });
  EXPECT_EQ(queue.size(), 0);
}

// Else one that is never empty would take ever more of it. What has gone takes no more than what is
// there.
TEST(FifoTest, OneThatIsNeverEmptyStaysInItsMemory) {
  Fifo<int> fifo;
  std::set<const int*> places;
  for (int i = 0; i < 2; ++i) fifo.Push(i);
  for (int i = 2; i < 1000; ++i) {
    fifo.Push(i);
    ASSERT_EQ(fifo.Pop(), i - 2);
    if (i > 10) places.insert(&fifo.front());
  }
  EXPECT_EQ(places.size(), 2);
}

TEST(FifoTest, ClearForgetsWhatIsThereAndWhatHasGone) {
  Fifo<int> fifo;
  for (int i = 0; i < 3; ++i) fifo.Push(i);
  fifo.Pop();
  fifo.Clear();
  EXPECT_TRUE(fifo.empty());
  fifo.Push(7);
  EXPECT_EQ(fifo.size(), 1);
  EXPECT_EQ(fifo[0], 7);
}

TEST(ByteQueueTest, OneThatIsNeverEmptyStaysInItsMemory) {
  ByteQueue queue;
  std::set<const std::byte*> places;
  for (int i = 0; i < 2; ++i) queue.PushObject('x');
  for (int i = 0; i < 1000; ++i) {
    queue.PushObject('x');
    queue.Pop(1);
    if (i > 10) places.insert(queue.bytes().data());
  }
  EXPECT_EQ(places.size(), 2);
}

TEST(ByteQueueTest, NoBytesArePushedAsNothing) {
  ByteQueue queue;
  queue.Push({});
  EXPECT_EQ(queue.size(), 0);
  EXPECT_EQ(queue.pushed(), 0);
}

}  // namespace
}  // namespace crossmesh
