#include "common/memory_protocol/storage_sequence.h"

#include "common/base/check.h"
#include "common/testing/status_matchers.h"
#include "worker/memory/storage_table.h"

#include <memory>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using Lease = StorageTable::Lease;

const StorageKey kStorage{.name = "weights", .device = {"a", 0}};
const StorageTable::Writing kInPlace = {.shadow = false};

// The test is the process that has the storage's memory.
class StorageSequenceTest : public testing::Test {
 protected:
  StorageSequenceTest() {
    CHECK_OK(table_.Create(kStorage, 64));
    auto opened = table_.OpenSequence(kStorage);
    CHECK_OK(opened);
    page_ = std::move(opened->arena);
  }
  StorageSequence& words() { return *reinterpret_cast<StorageSequence*>(page_->bytes().data()); }
  StorageState State() { return table_.Status(kStorage)->state; }

  StorageTable table_{Arena::Pages::kSmall};
  std::shared_ptr<Arena> page_;
};

TEST_F(StorageSequenceTest, ThereIsOnePageForAllProcesses) {
  ASSERT_OK_AND_ASSIGN(const StorageTable::Opened again, table_.OpenSequence(kStorage));
  EXPECT_EQ(again.arena, page_);
  EXPECT_EQ(again.status.bytes, 64);
  EXPECT_EQ(words().user, 0U);
  EXPECT_THAT(table_.OpenSequence({.name = "none", .device = {"a", 0}}),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(StorageSequenceTest, OperationsInPlaceAreRefusedWhileAProcessUsesTheMemory) {
  words().user = 7;
  const char* const expected =
      "storage \"weights\" of device a.0 is in use by a process that has its memory: expected an "
      "even sequence, found 7; wait for its streams before an operation";
  EXPECT_THAT(table_.LeaseForReading(kStorage, 64),
              StatusIs(absl::StatusCode::kFailedPrecondition, expected));
  EXPECT_THAT(table_.LeaseForWriting(kStorage, 64, kInPlace),
              StatusIs(absl::StatusCode::kFailedPrecondition, expected));
  // Neither has left a lease or a state.
  words().user = 8;
  EXPECT_EQ(State(), StorageState::kReady);
  EXPECT_OK(table_.LeaseForWriting(kStorage, 64, kInPlace));
  EXPECT_OK(table_.LeaseForReading(kStorage, 64));
}

TEST_F(StorageSequenceTest, AShadowIsInNobodysWay) {
  words().user = 7;
  ASSERT_OK_AND_ASSIGN(Lease lease, table_.LeaseForWriting(kStorage, 64, {.shadow = true}));
  words().user = 8;
  EXPECT_OK(table_.Commit(std::move(lease)));
}

TEST_F(StorageSequenceTest, AReaderSeesThatAProcessUsedTheMemoryMeanwhile) {
  words().user = 6;
  ASSERT_OK_AND_ASSIGN(const Lease lease, table_.LeaseForReading(kStorage, 64));
  EXPECT_OK(lease.CheckUndisturbed());
  words().user = 7;
  EXPECT_THAT(
      lease.CheckUndisturbed(),
      StatusIs(absl::StatusCode::kAborted,
               "storage \"weights\" of device a.0 was used by a process that has its memory: "
               "expected its sequence to stay 6 during the operation, found 7"));
  // At rest again is not as before.
  words().user = 8;
  EXPECT_THAT(lease.CheckUndisturbed(), StatusIs(absl::StatusCode::kAborted, HasSubstr("found 8")));
}

TEST_F(StorageSequenceTest, ALeaseThatTakesThePlaceOfAnotherOneStillSeesIt) {
  const StorageKey other{.name = "other", .device = {"a", 0}};
  ASSERT_OK(table_.Create(other, 64));
  ASSERT_OK_AND_ASSIGN(Lease lease, table_.LeaseForReading(other, 64));
  lease = *table_.LeaseForReading(kStorage, 64);
  words().user = 2;
  EXPECT_THAT(lease.CheckUndisturbed(), StatusIs(absl::StatusCode::kAborted));
  lease = *table_.LeaseForReading(kStorage, 64);
  EXPECT_OK(lease.CheckUndisturbed());
}

TEST_F(StorageSequenceTest, WhatAProcessHasDisturbedIsNotCommitted) {
  ASSERT_OK_AND_ASSIGN(Lease lease, table_.LeaseForWriting(kStorage, 64, kInPlace));
  lease.BeginWriting();
  words().user = 2;
  Lease moved = std::move(lease);
  EXPECT_THAT(table_.Commit(std::move(moved)), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(State(), StorageState::kDirty);
  EXPECT_EQ(words().generation, 1U);
  // The next operation may mend it.
  ASSERT_OK_AND_ASSIGN(Lease next, table_.LeaseForWriting(kStorage, 64, kInPlace));
  EXPECT_OK(table_.Commit(std::move(next)));
  EXPECT_EQ(State(), StorageState::kReady);
}

TEST_F(StorageSequenceTest, TellsTheGenerationThatIsThere) {
  EXPECT_EQ(words().generation, 1U);
  ASSERT_OK_AND_ASSIGN(Lease lease, table_.LeaseForWriting(kStorage, 64, kInPlace));
  EXPECT_EQ(words().generation, 1U);
  ASSERT_OK(table_.Commit(std::move(lease)));
  EXPECT_EQ(words().generation, 2U);
  ASSERT_OK(table_.Delete(kStorage));
  EXPECT_EQ(words().generation, 0U);
}

}  // namespace
}  // namespace crossmesh
