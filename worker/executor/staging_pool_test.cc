#include "worker/executor/staging_pool.h"

#include "common/base/byte_count.h"
#include "worker/memory/arena.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int64_t kUnit = StagingPool::kUnitBytes;

std::shared_ptr<Arena> MakeArena(int64_t bytes) {
  return *Arena::Create("staging", ByteCount(bytes));
}

class PoolWaiter final : public StagingWaiter {
 public:
  PoolWaiter(StagingPool& pool, int64_t bytes) : pool_(pool), bytes_(bytes) {}
  void OnStagingFree() override { Try(); }
  bool Try() {
    if (!wants_) return false;
    const auto memory = pool_.Allocate(bytes_, *this);
    if (memory.has_value()) memory_ = *memory;
    return memory.has_value();
  }
  void StopWanting() { wants_ = false; }
  void Want(int64_t bytes) { bytes_ = bytes; }
  std::span<std::byte> memory() const { return memory_; }

 private:
  StagingPool& pool_;
  int64_t bytes_;
  bool wants_ = true;
  std::span<std::byte> memory_;
};

TEST(StagingPool, GivesMemoryUntilItIsUsedUp) {
  StagingPool pool(MakeArena(2 * kUnit));
  PoolWaiter a(pool, 100);
  PoolWaiter b(pool, kUnit);
  PoolWaiter c(pool, 1);
  EXPECT_TRUE(a.Try());
  EXPECT_TRUE(b.Try());
  EXPECT_FALSE(c.Try());
  EXPECT_EQ(pool.used_bytes(), 2 * kUnit);
  pool.Release(a.memory());
  EXPECT_EQ(c.memory().data(), a.memory().data());
}

TEST(StagingPool, AByteBeyondAUnitTakesAnotherOne) {
  StagingPool pool(MakeArena(3 * kUnit));
  PoolWaiter a(pool, kUnit + 1);
  PoolWaiter b(pool, 1);
  ASSERT_TRUE(a.Try());
  EXPECT_EQ(std::ssize(a.memory()), kUnit + 1);
  EXPECT_EQ(pool.used_bytes(), 2 * kUnit);
  ASSERT_TRUE(b.Try());
  EXPECT_EQ(b.memory().data(), a.memory().data() + 2 * kUnit);
  pool.Release(a.memory());
  EXPECT_EQ(pool.used_bytes(), kUnit);
}

TEST(StagingPool, HasAtLeastAUnit) {
  const absl::StatusOr<StagingPool> pool = StagingPool::Create("staging", 0);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->bytes(), kUnit);
}

TEST(StagingPool, FindsRoomBehindAndBetweenWhatIsUsed) {
  StagingPool pool(MakeArena(5 * kUnit));
  PoolWaiter a(pool, kUnit);
  PoolWaiter b(pool, kUnit);
  PoolWaiter c(pool, kUnit);
  PoolWaiter two(pool, 2 * kUnit);
  PoolWaiter one(pool, kUnit);
  ASSERT_TRUE(a.Try() && b.Try() && c.Try());
  pool.Release(b.memory());
  ASSERT_TRUE(two.Try());
  EXPECT_EQ(two.memory().data(), c.memory().data() + kUnit);
  ASSERT_TRUE(one.Try());
  EXPECT_EQ(one.memory().data(), b.memory().data());
}

TEST(StagingPool, OneThatHasWaitedOnceWaitsAgain) {
  StagingPool pool(MakeArena(kUnit));
  PoolWaiter first(pool, kUnit);
  PoolWaiter second(pool, kUnit);
  ASSERT_TRUE(first.Try());
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(second.Try());
    pool.Release(first.memory());
    ASSERT_EQ(pool.used_bytes(), kUnit) << "the second has it";
    EXPECT_FALSE(first.Try());
    pool.Release(second.memory());
    ASSERT_EQ(pool.used_bytes(), kUnit) << "the first has it";
  }
}

TEST(StagingPool, OneThatWantsLessThanItWaitedForLeavesTheLine) {
  StagingPool pool(MakeArena(3 * kUnit));
  PoolWaiter first(pool, kUnit);
  PoolWaiter shrinks(pool, 3 * kUnit);
  PoolWaiter last(pool, kUnit);
  ASSERT_TRUE(first.Try());
  EXPECT_FALSE(shrinks.Try());
  shrinks.Want(kUnit);
  EXPECT_TRUE(shrinks.Try());
  EXPECT_TRUE(last.Try());
}

TEST(StagingPool, NoRequestOvertakesALargeOne) {
  StagingPool pool(MakeArena(2 * kUnit));
  PoolWaiter first(pool, kUnit);
  PoolWaiter large(pool, 2 * kUnit);
  PoolWaiter small(pool, kUnit);
  ASSERT_TRUE(first.Try());
  EXPECT_FALSE(large.Try());
  EXPECT_FALSE(small.Try());
  pool.Release(first.memory());
  EXPECT_EQ(std::ssize(large.memory()), 2 * kUnit);
  EXPECT_TRUE(small.memory().empty());
  pool.Release(large.memory());
  EXPECT_FALSE(small.memory().empty());
}

// As a channel does whose next chunk has failed elsewhere, when the one after it is larger.
TEST(StagingPool, OneThatWantsMoreThanItWaitedForKeepsItsPlace) {
  StagingPool pool(MakeArena(2 * kUnit));
  PoolWaiter first(pool, kUnit);
  PoolWaiter second(pool, kUnit);
  PoolWaiter grows(pool, kUnit);
  PoolWaiter last(pool, kUnit);
  ASSERT_TRUE(first.Try());
  ASSERT_TRUE(second.Try());
  EXPECT_FALSE(grows.Try());
  EXPECT_FALSE(last.Try());
  grows.Want(2 * kUnit);
  pool.Release(first.memory());
  EXPECT_TRUE(grows.memory().empty());
  EXPECT_TRUE(last.memory().empty());
  pool.Release(second.memory());
  ASSERT_EQ(std::ssize(grows.memory()), 2 * kUnit);
  pool.Release(grows.memory());
  EXPECT_FALSE(last.memory().empty());
}

TEST(StagingPool, WhoWantsNothingAnyMoreDoesNotHoldUpTheLine) {
  StagingPool pool(MakeArena(kUnit));
  PoolWaiter first(pool, kUnit);
  PoolWaiter gone(pool, kUnit);
  PoolWaiter forgotten(pool, kUnit);
  PoolWaiter last(pool, kUnit);
  ASSERT_TRUE(first.Try());
  EXPECT_FALSE(gone.Try());
  EXPECT_FALSE(forgotten.Try());
  EXPECT_FALSE(last.Try());
  gone.StopWanting();
  pool.Forget(forgotten);
  pool.Release(first.memory());
  EXPECT_FALSE(last.memory().empty());
}

}  // namespace
}  // namespace crossmesh
