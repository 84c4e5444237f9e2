// Storages whose memory a GPU has, or is to have, or had.

#include "common/base/unique_fd.h"
#include "common/testing/status_matchers.h"
#include "worker/memory/storage_table.h"

#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using Lease = StorageTable::Lease;

const StorageKey kGpuKey{.name = "trainer", .device = {"a", 0}};

// Storages of a GPU whose memory a test makes, or fails to make.
class GpuStorageTableTest : public testing::Test {
 protected:
  StorageTable table_{[this](const StorageKey& /*key*/, ByteCount bytes) {
    memories_.push_back(std::make_shared<DeviceMemory>("GPU-1"));
    auto arena = Arena::Reserve("test", bytes, memories_.back());
    arenas_.push_back(arena->get());
    return arena;
  }};
  std::vector<std::shared_ptr<DeviceMemory>> memories_;
  std::vector<Arena*> arenas_;
};

TEST_F(GpuStorageTableTest, TheMakerOfArenasMakesStoragesAndShadows) {
  ASSERT_OK(table_.Create(kGpuKey, 64));
  ASSERT_OK_AND_ASSIGN(const Lease shadow, table_.LeaseForWriting(kGpuKey, 64, {.shadow = true}));
  ASSERT_EQ(arenas_.size(), 2);
  EXPECT_EQ(table_.Open(kGpuKey)->arena.get(), arenas_[0]);
  EXPECT_EQ(table_.Open(kGpuKey)->status.gpu, "GPU-1");
  EXPECT_EQ(shadow.bytes().data(), arenas_[1]->bytes().data());
}

TEST_F(GpuStorageTableTest, AStorageWhoseMemoryCouldNotBeMadeIsNone) {
  ASSERT_OK(table_.Create(kGpuKey, 64));
  {
    ASSERT_OK_AND_ASSIGN(const Lease lease, table_.LeaseForReading(kGpuKey, 64));
    memories_[0]->Finish(absl::ResourceExhaustedError("full"));
    EXPECT_THAT(table_.LeaseForReading(kGpuKey, 64),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("could not be made: full")));
  }
  EXPECT_THAT(table_.List(), testing::IsEmpty());
  EXPECT_THAT(table_.Status(kGpuKey), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_OK(table_.Create(kGpuKey, 128));
  EXPECT_EQ(table_.Status(kGpuKey)->bytes, 128);
}

// So that the client that creates one hears why there is no memory, however soon that is known.
TEST(StorageTableOfFullGpuTest, WhoCreatesAStorageHasItThoughItsMemoryCouldNotBeMade) {
  StorageTable table([](const StorageKey& /*key*/, ByteCount bytes) {
    auto full = std::make_shared<DeviceMemory>("GPU-1");
    full->Finish(absl::ResourceExhaustedError("full"));
    return Arena::Reserve("test", bytes, std::move(full));
  });
  ASSERT_OK_AND_ASSIGN(const StorageTable::Opened opened, table.Create(kGpuKey, 64));
  EXPECT_THAT(opened.arena->status(), StatusIs(absl::StatusCode::kResourceExhausted, "full"));
  EXPECT_THAT(table.Open(kGpuKey), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(GpuStorageTableTest, AStorageWhoseMemoryIsLostIsRefusedWithTheCause) {
  ASSERT_OK(table_.Create(kGpuKey, 64));
  memories_[0]->Finish(UniqueFd());
  memories_[0]->Lose(absl::InvalidArgumentError("GPU-1 was reset"));
  const auto is_lost = StatusIs(absl::StatusCode::kFailedPrecondition,
                                "storage \"trainer\" of device a.0 is LOST: expected its 64 bytes "
                                "in the memory of GPU GPU-1, "
                                "found: GPU-1 was reset; delete it, or create it again");
  EXPECT_THAT(table_.Open(kGpuKey), is_lost);
  EXPECT_THAT(table_.LeaseForReading(kGpuKey, 64), is_lost);
  EXPECT_THAT(table_.LeaseForWriting(kGpuKey, 64, {.shadow = true, .create = true}), is_lost);
  ASSERT_EQ(table_.List().size(), 1U);
  EXPECT_EQ(table_.List()[0].state, StorageState::kLost);
  EXPECT_EQ(table_.Bytes().total(), 0);
}

TEST_F(GpuStorageTableTest, AStorageWhoseMemoryIsLostCanBeDeletedOrCreatedAgain) {
  for (const bool is_deleted : {true, false}) {
    ASSERT_OK(table_.Create(kGpuKey, 64));
    memories_.back()->Finish(UniqueFd());
    memories_.back()->Lose(absl::InvalidArgumentError("GPU-1 was reset"));
    if (is_deleted) {
      EXPECT_OK(table_.Delete(kGpuKey));
      EXPECT_THAT(table_.Open(kGpuKey), StatusIs(absl::StatusCode::kNotFound));
    }
    EXPECT_OK(table_.Create(kGpuKey, 128));
    EXPECT_EQ(table_.Open(kGpuKey)->status.state, StorageState::kReady);
    EXPECT_OK(table_.Delete(kGpuKey));
  }
}

TEST_F(GpuStorageTableTest, AShadowThatIsLostIsMadeAgain) {
  ASSERT_OK(table_.Create(kGpuKey, 64));
  EXPECT_OK(table_.LeaseForWriting(kGpuKey, 64, {.shadow = true}));
  memories_[1]->Finish(UniqueFd());
  memories_[1]->Lose(absl::InvalidArgumentError("GPU-1 was reset"));
  EXPECT_OK(table_.Open(kGpuKey));
  EXPECT_OK(table_.LeaseForWriting(kGpuKey, 64, {.shadow = true}));
  EXPECT_EQ(arenas_.size(), 3);
}

TEST_F(GpuStorageTableTest, AShadowThatCouldNotBeMadeIsMadeAgain) {
  ASSERT_OK(table_.Create(kGpuKey, 64));
  EXPECT_OK(table_.LeaseForWriting(kGpuKey, 64, {.shadow = true}));
  memories_[1]->Finish(absl::ResourceExhaustedError("full"));
  EXPECT_OK(table_.LeaseForWriting(kGpuKey, 64, {.shadow = true}));
  EXPECT_OK(table_.LeaseForWriting(kGpuKey, 64, {.shadow = true}));
  EXPECT_EQ(arenas_.size(), 3);
}

}  // namespace
}  // namespace crossmesh
