#include "worker/memory/memory_budget.h"

#include "common/base/testing/resource_limit.h"
#include "common/base/thread.h"
#include "common/testing/status_matchers.h"
#include "worker/memory/storage_table.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MemoryBudgetTest, ArenasTakeOfItAndGiveBack) {
  MemoryBudget budget(ByteCount(10'000), ByteCount(1'000));
  EXPECT_EQ(budget.bytes_max(), 10'000);
  EXPECT_EQ(budget.used_bytes(), 1'000);
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<Arena> first, budget.MakeArena("a", ByteCount(6'000)));
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<Arena> second,
                       budget.MakeArena("b", ByteCount(3'000)));
  EXPECT_EQ(first->bytes().size(), 6'000U);
  EXPECT_GE(first->fd(), 0);
  EXPECT_EQ(budget.used_bytes(), 10'000);
  first.reset();
  EXPECT_EQ(budget.used_bytes(), 4'000);
}

TEST(MemoryBudgetTest, WhatIsTooMuchIsRefusedWithTheFigures) {
  MemoryBudget budget(ByteCount(10'000));
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<Arena> first, budget.MakeArena("a", ByteCount(4'000)));
  EXPECT_THAT(
      budget.MakeArena("b", ByteCount(6'001)),
      StatusIs(absl::StatusCode::kResourceExhausted,
               AllOf(HasSubstr("b: expected at most 10000 bytes"), HasSubstr("--memory-max"),
                     HasSubstr("found 4000 in use and 6001 wanted"))));
  EXPECT_THAT(budget.MakeArena("b", ByteCount(INT64_MAX)),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(budget.used_bytes(), 4'000);
  EXPECT_OK(budget.MakeArena("b", ByteCount(6'000)));
}

TEST(MemoryBudgetTest, WhatTheSystemRefusesIsNotCounted) {
  MemoryBudget budget(ByteCount(INT64_MAX));
  EXPECT_THAT(budget.MakeArena("vast", ByteCount(int64_t{1} << 60)),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("arena vast")));
  EXPECT_EQ(budget.used_bytes(), 0);
}

TEST(MemoryBudgetTest, SomeOfTheAddressSpaceIsLeftToTheProcess) {
  MemoryBudget budget(ByteCount(INT64_MAX));
  constexpr int64_t kRoom = int64_t{1} << 30;
  const ScopedResourceLimit tight(RLIMIT_AS, MappedBytes() + kRoom);
  const absl::Status refused = budget.MakeArena("a", ByteCount(kRoom / 8 * 7)).status();
  const absl::Status made = budget.MakeArena("a", ByteCount(kRoom / 2)).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                AllOf(HasSubstr("a: expected at most"), HasSubstr("ulimit -v"))));
  EXPECT_OK(made);
  EXPECT_EQ(budget.used_bytes(), 0);
}

TEST(MemoryBudgetTest, WhatIsNoArenaTakesOfItToo) {
  MemoryBudget budget(ByteCount(100));
  ASSERT_OK_AND_ASSIGN(MemoryBudget::Share share, budget.Take("plan", ByteCount(60)));
  MemoryBudget::Share copy = share;
  share.reset();
  EXPECT_EQ(budget.used_bytes(), 60);
  EXPECT_THAT(
      budget.Take("other", ByteCount(41)),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("found 60 in use and 41 wanted")));
  copy.reset();
  EXPECT_EQ(budget.used_bytes(), 0);
}

TEST(MemoryBudgetTest, ArenasMayOutliveIt) {
  std::optional<MemoryBudget> budget(std::in_place, ByteCount(100));
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<Arena> arena, budget->MakeArena("a", ByteCount(100)));
  budget.reset();
  arena.reset();
}

TEST(MemoryBudgetTest, ThreadsTogetherTakeNoMoreThanThereIs) {
  MemoryBudget budget(ByteCount(10));
  std::atomic<int> made = 0;
  std::vector<std::vector<std::shared_ptr<Arena>>> arenas(4);
  std::vector<Thread> threads;
  for (std::vector<std::shared_ptr<Arena>>& own : arenas) {
    threads.emplace_back("take", [&] {
      for (int i = 0; i < 10; ++i) {
        auto arena = budget.MakeArena("a", ByteCount(1));
        if (!arena.ok()) continue;
        ++made;
        own.push_back(*std::move(arena));
      }
    });
  }
  threads.clear();
  EXPECT_EQ(made, 10);
  EXPECT_EQ(budget.used_bytes(), 10);
}

TEST(MemoryBudgetTest, AShadowIsRefusedAsAStorageIs) {
  MemoryBudget budget(ByteCount(150));
  StorageTable storages(
      [&](const StorageKey& key, ByteCount bytes) { return budget.MakeArena(key.name, bytes); });
  const StorageKey key = {"serving", {"a", 0}};
  ASSERT_OK(storages.Create(key, 100));
  EXPECT_THAT(storages.LeaseForWriting(key, 100, {.shadow = true}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("100 in use")));
  // It is as it was, and not taken.
  EXPECT_OK(storages.LeaseForWriting(key, 100, {.shadow = false}));
  EXPECT_OK(storages.Delete(key));
  EXPECT_EQ(budget.used_bytes(), 0);
}

// A source and a destination of 600 bytes that have at most 700 together.
TEST(MemoryBudgetTest, WhatASourceThatIsGivenUpSparesIsTheDestinations) {
  MemoryBudget budget(ByteCount(1'000));
  StorageTable storages(
      [&](const StorageKey& key, ByteCount bytes) { return budget.MakeArena(key.name, bytes); });
  const StorageKey source{.name = "source", .device = {"a", 0}};
  const StorageKey destination{.name = "destination", .device = {"a", 0}};
  ASSERT_OK(storages.Create(source, 600));
  EXPECT_THAT(storages.Create(destination, 600), StatusIs(absl::StatusCode::kResourceExhausted));
  {
    ASSERT_OK_AND_ASSIGN(const auto lease,
                         storages.LeaseForConsuming(source, 600, {.spared_bytes = 500}));
    EXPECT_EQ(budget.used_bytes(), 100);
  }
  EXPECT_EQ(budget.used_bytes(), 600);
  ASSERT_OK_AND_ASSIGN(auto lease, storages.LeaseForConsuming(source, 600, {.spared_bytes = 500}));
  ASSERT_OK(storages.Create(destination, 600));
  EXPECT_EQ(budget.used_bytes(), 700);
  storages.Consume(std::move(lease));
  EXPECT_EQ(budget.used_bytes(), 600);
  ASSERT_OK(storages.Delete(destination));
  EXPECT_EQ(budget.used_bytes(), 0);
}

}  // namespace
}  // namespace crossmesh
