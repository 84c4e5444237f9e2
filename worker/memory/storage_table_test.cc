#include "worker/memory/storage_table.h"

#include "common/base/check.h"
#include "common/base/thread.h"
#include "common/testing/status_matchers.h"

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Lease = StorageTable::Lease;

const StorageKey kKey{.name = "trainer", .device = {"a", 0}};

class StorageTableTest : public testing::Test {
 protected:
  StorageTableTest() { CHECK_OK(table_.Create(kKey, 64)); }
  StorageStatus Now() { return *table_.Status(kKey); }

  StorageTable table_{Arena::Pages::kSmall};
};

TEST_F(StorageTableTest, CreatesOncePerName) {
  EXPECT_OK(table_.Create(kKey, 64));
  EXPECT_THAT(table_.Create(kKey, 65),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       "storage \"trainer\" of device a.0: expected 65 bytes, found one of 64"));
  EXPECT_EQ(table_.List().size(), 1U);
  EXPECT_EQ(Now().generation, 1U);
  EXPECT_THAT(table_.Create({.name = "", .device = {"a", 0}}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(StorageTableTest, AdoptsMemoryOfOthers) {
  std::vector<std::byte> memory(32);
  const StorageKey key{.name = "lent", .device = {"a", 1}};
  ASSERT_OK(table_.Adopt(key, Arena::Borrow(memory)));
  EXPECT_THAT(table_.Adopt(key, Arena::Borrow(memory)), StatusIs(absl::StatusCode::kAlreadyExists));
  ASSERT_OK_AND_ASSIGN(const Lease lease, table_.LeaseForReading(key, 32));
  EXPECT_EQ(lease.bytes().data(), memory.data());
}

TEST_F(StorageTableTest, AShadowTakesNoPlaceOfMemoryOfOthers) {
  std::vector<std::byte> memory(32);
  const StorageKey key{.name = "lent", .device = {"a", 1}};
  ASSERT_OK(table_.Adopt(key, Arena::Borrow(memory)));
  EXPECT_THAT(table_.LeaseForWriting(key, 32, {.shadow = true}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("expected an operation in place, found shadow")));
  EXPECT_EQ(table_.Status(key)->state, StorageState::kReady);
  ASSERT_OK_AND_ASSIGN(Lease lease, table_.LeaseForWriting(key, 32, {.shadow = false}));
  EXPECT_EQ(lease.bytes().data(), memory.data());
  ASSERT_OK(table_.Commit(std::move(lease)));
  EXPECT_EQ(table_.Status(key)->generation, 2u);
}

TEST_F(StorageTableTest, CountsReadersUntilTheyRelease) {
  std::optional<Lease> lease = *table_.LeaseForReading(kKey, 64);
  Lease moved = *std::move(lease);
  lease.reset();
  EXPECT_EQ(Now().readers, 1);
  EXPECT_THAT(table_.Delete(kKey), StatusIs(absl::StatusCode::kFailedPrecondition));
  moved = *table_.LeaseForReading(kKey, 64);
  EXPECT_EQ(Now().readers, 1);
}

TEST_F(StorageTableTest, WhatIsLeasedIsRefusedWithWhatLeasesIt) {
  ASSERT_OK_AND_ASSIGN(const Lease reader, table_.LeaseForReading(kKey, 64, "operation op-1"));
  ASSERT_OK_AND_ASSIGN(const Lease writer,
                       table_.LeaseForWriting(kKey, 64, {.user = "operation op-2"}));
  EXPECT_THAT(table_.Delete(kKey),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("found operation op-1 (reads), operation op-2 (writes)")));
  EXPECT_THAT(table_.LeaseForWriting(kKey, 64, {.shadow = true}),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("written by operation op-2")));
}

TEST_F(StorageTableTest, DeletesWhatIsNotLeased) {
  EXPECT_OK(table_.Delete(kKey));
  EXPECT_THAT(table_.Delete(kKey), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(table_.LeaseForReading(kKey, 64), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(table_.LeaseForWriting(kKey, 64, {.shadow = true}),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(StorageTableTest, RefusesAnotherSize) {
  EXPECT_THAT(table_.LeaseForReading(kKey, 65),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("expected 65 bytes")));
  EXPECT_THAT(table_.LeaseForWriting(kKey, 1, {.shadow = true}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(StorageTableTest, HasOneWriter) {
  ASSERT_OK_AND_ASSIGN(const Lease lease, table_.LeaseForWriting(kKey, 64, {.shadow = true}));
  EXPECT_THAT(table_.LeaseForWriting(kKey, 64, {.shadow = true}),
              StatusIs(absl::StatusCode::kAborted));
}

TEST_F(StorageTableTest, AShadowIsSeenOnlyAfterItsCommit) {
  ASSERT_OK_AND_ASSIGN(Lease writer, table_.LeaseForWriting(kKey, 64, {.shadow = true}));
  ASSERT_OK_AND_ASSIGN(const Lease before, table_.LeaseForReading(kKey, 64));
  writer.bytes()[0] = std::byte{9};
  EXPECT_EQ(before.bytes()[0], std::byte{0});
  ASSERT_OK(table_.Commit(std::move(writer)));
  EXPECT_EQ(Now().generation, 2U);
  EXPECT_EQ(before.bytes()[0], std::byte{0});
  ASSERT_OK_AND_ASSIGN(const Lease after, table_.LeaseForReading(kKey, 64));
  EXPECT_EQ(after.bytes()[0], std::byte{9});
}

TEST_F(StorageTableTest, AStreamOfVersionsUsesTwoArenas) {
  const std::byte* first = table_.LeaseForReading(kKey, 64)->bytes().data();
  for (int version = 0; version < 2; ++version) {
    ASSERT_OK(table_.Commit(*table_.LeaseForWriting(kKey, 64, {.shadow = true})));
  }
  EXPECT_EQ(table_.LeaseForReading(kKey, 64)->bytes().data(), first);
}

TEST_F(StorageTableTest, AnOldReaderKeepsItsArenaThroughTwoCommits) {
  ASSERT_OK_AND_ASSIGN(const Lease old, table_.LeaseForReading(kKey, 64));
  ASSERT_OK(table_.Commit(*table_.LeaseForWriting(kKey, 64, {.shadow = true})));
  ASSERT_OK_AND_ASSIGN(const Lease writer, table_.LeaseForWriting(kKey, 64, {.shadow = true}));
  EXPECT_NE(writer.bytes().data(), old.bytes().data());
}

TEST_F(StorageTableTest, AnAbandonedShadowChangesNothing) {
  {
    ASSERT_OK_AND_ASSIGN(const Lease lease, table_.LeaseForWriting(kKey, 64, {.shadow = true}));
  }
  EXPECT_EQ(Now().generation, 1U);
  EXPECT_EQ(Now().state, StorageState::kReady);
  EXPECT_FALSE(Now().writing);
}

TEST_F(StorageTableTest, ALeaseInPlaceThatTakesThePlaceOfAnotherStillUndoesItself) {
  const StorageKey other{.name = "other", .device = {"a", 1}};
  ASSERT_OK(table_.Create(other, 64));
  std::optional<Lease> lease = *table_.LeaseForReading(other, 64);
  *lease = *table_.LeaseForWriting(kKey, 64, {.shadow = false});
  EXPECT_EQ(table_.Status(other)->readers, 0);
  EXPECT_EQ(Now().state, StorageState::kDirty);
  lease.reset();
  EXPECT_EQ(Now().state, StorageState::kReady);
  EXPECT_FALSE(Now().writing);
}

TEST_F(StorageTableTest, InPlaceIsDirtyUntilItsCommit) {
  {
    ASSERT_OK_AND_ASSIGN(Lease lease, table_.LeaseForWriting(kKey, 64, {.shadow = false}));
    lease.BeginWriting();
  }
  EXPECT_EQ(Now().state, StorageState::kDirty);
  EXPECT_THAT(table_.LeaseForReading(kKey, 64),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("DIRTY")));
  ASSERT_OK(table_.Commit(*table_.LeaseForWriting(kKey, 64, {.shadow = false})));
  EXPECT_OK(table_.LeaseForReading(kKey, 64));
  EXPECT_EQ(Now().generation, 2U);
}

TEST_F(StorageTableTest, ALeaseInPlaceThatWritesNothingLeavesTheStorageAsItWas) {
  {
    ASSERT_OK_AND_ASSIGN(const Lease lease, table_.LeaseForWriting(kKey, 64, {.shadow = false}));
    EXPECT_THAT(table_.LeaseForReading(kKey, 64), StatusIs(absl::StatusCode::kFailedPrecondition));
  }
  EXPECT_EQ(Now().state, StorageState::kReady);
  EXPECT_OK(table_.LeaseForReading(kKey, 64));

  {
    ASSERT_OK_AND_ASSIGN(Lease lease, table_.LeaseForWriting(kKey, 64, {.shadow = false}));
    lease.BeginWriting();
  }
  {
    ASSERT_OK_AND_ASSIGN(const Lease lease, table_.LeaseForWriting(kKey, 64, {.shadow = false}));
  }
  EXPECT_EQ(Now().state, StorageState::kDirty) << "of the one that did write";
}

TEST_F(StorageTableTest, AShadowCommitCleansADirtyStorage) {
  {
    ASSERT_OK_AND_ASSIGN(Lease lease, table_.LeaseForWriting(kKey, 64, {.shadow = false}));
    lease.BeginWriting();
  }
  ASSERT_OK(table_.Commit(*table_.LeaseForWriting(kKey, 64, {.shadow = true})));
  EXPECT_OK(table_.LeaseForReading(kKey, 64));
}

TEST_F(StorageTableTest, InPlaceWaitsForNoReader) {
  ASSERT_OK_AND_ASSIGN(const Lease reader, table_.LeaseForReading(kKey, 64));
  EXPECT_THAT(table_.LeaseForWriting(kKey, 64, {.shadow = false}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("found the worker's process (reads)")));
}

TEST_F(StorageTableTest, CommitsOnlyWhatWasWritten) {
  EXPECT_THAT(table_.Commit(*table_.LeaseForReading(kKey, 64)),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(Now().readers, 0);
}

TEST_F(StorageTableTest, ReadersSeeWholeVersionsWhileTheyChange) {
  std::atomic<bool> stop = false;
  Thread writer("writer", [&] {
    for (int version = 1; version <= 200; ++version) {
      auto lease = table_.LeaseForWriting(kKey, 64, {.shadow = true});
      CHECK_OK(lease);
      for (std::byte& b : lease->bytes()) b = static_cast<std::byte>(version);
      CHECK_OK(table_.Commit(*std::move(lease)));
    }
    stop = true;
  });
  while (!stop) {
    const Lease lease = *table_.LeaseForReading(kKey, 64);
    for (const std::byte b : lease.bytes()) ASSERT_EQ(b, lease.bytes()[0]);
  }
}

TEST_F(StorageTableTest, EachByteIsCountedOnce) {
  const auto counts = [this] {
    const StorageBytes bytes = table_.Bytes();
    EXPECT_EQ(bytes.total(), Now().bytes + Now().shadow_bytes);
    return std::vector{bytes.resident, bytes.receiving, bytes.shadows};
  };
  EXPECT_THAT(counts(), ElementsAre(64, 0, 0));
  {
    ASSERT_OK_AND_ASSIGN(const Lease lease, table_.LeaseForWriting(kKey, 64, {.shadow = false}));
    EXPECT_THAT(counts(), ElementsAre(0, 64, 0));
  }
  {
    ASSERT_OK_AND_ASSIGN(const Lease lease, table_.LeaseForWriting(kKey, 64, {.shadow = true}));
    EXPECT_THAT(counts(), ElementsAre(64, 64, 0));
    EXPECT_EQ(Now().shadow_bytes, 64);
  }
  EXPECT_THAT(counts(), ElementsAre(64, 0, 64)) << "it is kept for the next version";
  ASSERT_OK_AND_ASSIGN(const Lease lease, table_.LeaseForWriting(kKey, 64, {.shadow = false}));
  EXPECT_THAT(counts(), ElementsAre(0, 64, 64));
}

TEST_F(StorageTableTest, AShadowThatNothingUsesIsFreed) {
  EXPECT_OK(table_.Trim(kKey)) << "there is none";
  ASSERT_OK(table_.Commit(*table_.LeaseForWriting(kKey, 64, {.shadow = true})));
  EXPECT_EQ(Now().shadow_bytes, 64);
  ASSERT_OK(table_.Trim(kKey));
  EXPECT_EQ(Now().shadow_bytes, 0);
  EXPECT_EQ(Now().bytes, 64);
  EXPECT_EQ(Now().generation, 2U);
  EXPECT_OK(table_.Commit(*table_.LeaseForWriting(kKey, 64, {.shadow = true})));
  EXPECT_EQ(Now().generation, 3U);
  EXPECT_THAT(table_.Trim({"nowhere", {"a", 0}}), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(StorageTableTest, AShadowThatIsWrittenOrReadIsNotFreed) {
  std::optional<Lease> old = *table_.LeaseForReading(kKey, 64, "operation op-1");
  std::optional<Lease> writer =
      *table_.LeaseForWriting(kKey, 64, {.shadow = true, .user = "operation op-2"});
  EXPECT_THAT(table_.Trim(kKey), StatusIs(absl::StatusCode::kFailedPrecondition,
                                          HasSubstr("found operation op-2 (writes)")));
  ASSERT_OK(table_.Commit(*std::move(writer)));
  EXPECT_THAT(table_.Trim(kKey), StatusIs(absl::StatusCode::kFailedPrecondition,
                                          HasSubstr("found operation op-1 (reads)")));
  old.reset();
  ASSERT_OK_AND_ASSIGN(const Lease in_place, table_.LeaseForWriting(kKey, 64, {.shadow = false}));
  EXPECT_OK(table_.Trim(kKey)) << "the shadow is not what is written";
  EXPECT_EQ(Now().shadow_bytes, 0);
}

// Storages that are made for a writer.
class MadeStorageTest : public StorageTableTest {
 protected:
  absl::StatusOr<Lease> Write(const StorageKey& key) {
    return table_.LeaseForWriting(key, 64, {.create = true, .user = "operation op-1"});
  }

  const StorageKey made_{.name = "made", .device = {"a", 0}};
};

TEST_F(MadeStorageTest, GoesWithALeaseThatIsNotCommitted) {
  {
    ASSERT_OK_AND_ASSIGN(Lease lease, Write(made_));
    lease.BeginWriting();
    EXPECT_OK(table_.Status(made_));
  }
  EXPECT_THAT(table_.Status(made_), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(table_.Bytes().total(), 64);
}

TEST_F(MadeStorageTest, StaysOnceItIsCommitted) {
  ASSERT_OK(table_.Commit(*Write(made_)));
  EXPECT_OK(Write(made_));
  EXPECT_EQ(table_.Status(made_)->generation, 2U);
}

TEST_F(MadeStorageTest, StaysWhereItWasBefore) {
  EXPECT_OK(Write(kKey));
  EXPECT_EQ(Now().generation, 1U);
}

TEST_F(MadeStorageTest, StaysWhenOthersHaveCreatedItMeanwhile) {
  {
    ASSERT_OK_AND_ASSIGN(const Lease lease, Write(made_));
    EXPECT_THAT(table_.Create(made_, 65), StatusIs(absl::StatusCode::kAlreadyExists));
    ASSERT_OK(table_.Create(made_, 64));
  }
  EXPECT_OK(table_.Status(made_));
}

TEST_F(MadeStorageTest, HasNothingToReadBeforeItsCommit) {
  ASSERT_OK_AND_ASSIGN(Lease lease, Write(made_));
  EXPECT_THAT(table_.LeaseForReading(made_, 64),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("made by operation op-1 (writes)")));
  ASSERT_OK(table_.Commit(std::move(lease)));
  EXPECT_OK(table_.LeaseForReading(made_, 64));
}

TEST(StorageTableOfLittleMemoryTest, AStorageWhoseShadowCannotBeMadeIsNotMade) {
  int arenas = 0;
  StorageTable table(
      [&arenas](const StorageKey& key, ByteCount bytes) -> absl::StatusOr<std::shared_ptr<Arena>> {
        if (++arenas > 1) return absl::ResourceExhaustedError("full");
        return MakeHostArena(key, bytes, Arena::Pages::kSmall);
      });
  EXPECT_THAT(table.LeaseForWriting(kKey, 64, {.shadow = true, .create = true}),
              StatusIs(absl::StatusCode::kResourceExhausted, "full"));
  EXPECT_THAT(table.List(), testing::IsEmpty());
}

TEST_F(StorageTableTest, ASourceThatIsGivenUpHasNoOtherReaders) {
  {
    ASSERT_OK_AND_ASSIGN(const Lease reader, table_.LeaseForReading(kKey, 64));
    EXPECT_THAT(table_.LeaseForConsuming(kKey, 64, {}),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("(reads)")));
    EXPECT_EQ(Now().readers, 1);
  }
  ASSERT_OK_AND_ASSIGN(const Lease lease, table_.LeaseForConsuming(kKey, 64, {}));
  EXPECT_EQ(Now().state, StorageState::kDirty);
  EXPECT_THAT(table_.LeaseForReading(kKey, 64), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(table_.LeaseForConsuming(kKey, 64, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(table_.LeaseForWriting(kKey, 64, {.shadow = false}),
              StatusIs(absl::StatusCode::kAborted));
}

TEST_F(StorageTableTest, ASourceThatIsGivenUpIsWholeUntilItIsReleased) {
  ASSERT_OK(table_.LeaseForConsuming(kKey, 64, {}).status());
  EXPECT_EQ(Now().state, StorageState::kReady);
  {
    ASSERT_OK_AND_ASSIGN(Lease lease, table_.LeaseForConsuming(kKey, 64, {}));
    lease.BeginWriting();
  }
  EXPECT_EQ(Now().state, StorageState::kDirty);
  EXPECT_THAT(table_.LeaseForConsuming(kKey, 64, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("DIRTY")));
}

TEST_F(StorageTableTest, AConsumedSourceIsGone) {
  ASSERT_OK_AND_ASSIGN(Lease lease, table_.LeaseForConsuming(kKey, 64, {}));
  lease.BeginWriting();
  table_.Consume(std::move(lease));
  EXPECT_THAT(table_.Status(kKey), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(StorageTableTest, MemoryOfOthersCannotBeGivenUp) {
  std::vector<std::byte> memory(32);
  const StorageKey key{.name = "lent", .device = {"a", 1}};
  ASSERT_OK(table_.Adopt(key, Arena::Borrow(memory)));
  EXPECT_THAT(table_.LeaseForConsuming(key, 32, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("storage \"lent\" of device a.1: expected this worker's own")));
  EXPECT_EQ(table_.Status(key)->readers, 0);
}

}  // namespace
}  // namespace crossmesh
