#include "common/testing/allocations/count_allocations.h"

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

class CountAllocationsTest : public testing::Test {
 protected:
  // Through an object, so that no compiler takes both away.
  void Allocate(int count) {
    for (int i = 0; i < count; ++i) kept_ = std::make_unique<std::vector<int>>(1);
  }

  static constexpr int kEach = 2;  // the vector and its element
  std::unique_ptr<std::vector<int>> kept_;
};

TEST_F(CountAllocationsTest, EachAllocationCounts) {
  EXPECT_EQ(CountAllocations([] {}), 0);
  EXPECT_EQ(CountAllocations([this] { Allocate(3); }), 3 * kEach);
  EXPECT_EQ(CountAllocations([this] { Allocate(1); }), kEach);
}

TEST_F(CountAllocationsTest, WhatIsIgnoredDoesNotCount) {
  static int asked = 0;
  const auto ignore_the_second = [] {
    const auto allocated = std::make_unique<std::vector<int>>(1);
    return ++asked == 2;
  };
  EXPECT_EQ(CountAllocations([this] { Allocate(2); }, ignore_the_second), 2 * kEach - 1);
}

TEST_F(CountAllocationsTest, WhatIsKeptIsCountedAsMallocTakesIt) {
  std::unique_ptr<char[]> kept;
  EXPECT_EQ(CountKeptBytes([&] { kept = std::make_unique<char[]>(1000); }), 1024);
  EXPECT_EQ(CountKeptBytes([&] { kept = std::make_unique<char[]>(24); }), 32 - 1024);
  EXPECT_EQ(CountKeptBytes([&] { kept = std::make_unique<char[]>(1); }), 8 - 32);
}

TEST_F(CountAllocationsTest, OtherThreadsDoNotCount) {
  std::thread other;
  const int64_t of_start = CountAllocations([&] { other = std::thread([] {}); });
  other.join();
  const int64_t allocations = CountAllocations([&] {
    other = std::thread([this] { Allocate(100); });
    other.join();
  });
  EXPECT_EQ(allocations, of_start);
}

TEST_F(CountAllocationsTest, OtherThreadsCountWhereAllAreAskedFor) {
  std::thread other;
  const auto run = [&](int count) {
    return CountAllocationsOfAllThreads([&] {
      other = std::thread([this, count] { Allocate(count); });
      other.join();
    });
  };
  const int64_t of_start = run(0);
  EXPECT_EQ(run(100), of_start + 100 * kEach);
  EXPECT_EQ(CountAllocationsOfAllThreads([] {}), 0);
}

}  // namespace
}  // namespace crossmesh
