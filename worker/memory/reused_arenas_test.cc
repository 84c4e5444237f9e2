#include "worker/memory/reused_arenas.h"

#include "common/testing/status_matchers.h"

#include <cstddef>
#include <memory>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Each;

constexpr int64_t kBytes = 1000;

class ReusedArenasTest : public testing::Test {
 protected:
  std::shared_ptr<Arena> Take(int64_t bytes) {
    auto arena = kept_->Take(ByteCount(bytes), [&] {
      ++made_;
      return Arena::Create("test", ByteCount(bytes));
    });
    EXPECT_OK(arena);
    EXPECT_EQ(std::ssize((*arena)->bytes()), bytes);
    return *std::move(arena);
  }

  std::unique_ptr<ReusedArenas> kept_ = std::make_unique<ReusedArenas>(ByteCount(3 * kBytes));
  int made_ = 0;
};

TEST_F(ReusedArenasTest, WhatNobodyUsesIsTakenAgainAsItWasLeft) {
  std::shared_ptr<Arena> first = Take(kBytes);
  first->bytes()[7] = std::byte{42};
  const Arena* const before = first.get();
  first.reset();
  const std::shared_ptr<Arena> second = Take(kBytes);
  EXPECT_EQ(second.get(), before);
  EXPECT_EQ(second->bytes()[7], std::byte{42});
  EXPECT_EQ(made_, 1);
}

TEST_F(ReusedArenasTest, WhatIsUsedIsOfOneAlone) {
  const std::shared_ptr<Arena> first = Take(kBytes);
  const std::shared_ptr<Arena> copy = first;
  const std::shared_ptr<Arena> second = Take(kBytes);
  EXPECT_NE(first.get(), second.get());
  EXPECT_EQ(made_, 2);
}

TEST_F(ReusedArenasTest, AnotherSizeIsMadeAnew) {
  Take(kBytes);
  Take(kBytes + 1);
  Take(kBytes - 1);
  EXPECT_EQ(made_, 3);
  Take(kBytes - 1);
  Take(kBytes);
  EXPECT_EQ(made_, 3);
}

TEST_F(ReusedArenasTest, BeyondItsBytesWhatWasUsedLongestAgoGoes) {
  std::weak_ptr<Arena> oldest;
  {
    const auto a = kept_->Take(ByteCount(kBytes), [&] {
      auto arena = Arena::Create("test", ByteCount(kBytes));
      EXPECT_OK(arena);
      oldest = *arena;
      return arena;
    });
    ASSERT_OK(a);
  }
  Take(2 * kBytes);
  EXPECT_FALSE(oldest.expired());
  Take(1);
  EXPECT_TRUE(oldest.expired());
  Take(1);
  Take(2 * kBytes);
  EXPECT_EQ(made_, 2);
}

TEST_F(ReusedArenasTest, WhatIsLargerThanAllOfThemIsNotKept) {
  Take(kBytes);
  Take(3 * kBytes + 1);
  Take(3 * kBytes + 1);
  EXPECT_EQ(made_, 3);
  Take(kBytes);
  EXPECT_EQ(made_, 3);
}

TEST_F(ReusedArenasTest, AnErrorOfMakingIsTold) {
  const auto refused = kept_->Take(ByteCount(kBytes), [] {
    return absl::StatusOr<std::shared_ptr<Arena>>(absl::ResourceExhaustedError("no memory"));
  });
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted, "no memory"));
  EXPECT_NE(Take(kBytes), nullptr);
}

TEST_F(ReusedArenasTest, ArenasMayOutliveIt) {
  const std::shared_ptr<Arena> arena = Take(kBytes);
  kept_.reset();
  EXPECT_THAT(arena->bytes(), Each(std::byte{0}));
}

}  // namespace
}  // namespace crossmesh
