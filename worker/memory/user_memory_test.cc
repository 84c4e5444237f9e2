#include "worker/memory/user_memory.h"

#include "common/base/sealed_file.h"
#include "common/memory_protocol/piece_list.h"
#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = DeviceMemory::Kind;

const StorageKey kPool{.name = "pool", .device = {"a", 1}};
const StorageKey kWeights{.name = "weights", .device = {"a", 1}};

// Makes ranges for memory that is there at once.
class UserMemoryTest : public testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<Arena>> Make(Kind kind, ByteCount bytes) {
    memories_.push_back(std::make_shared<DeviceMemory>("GPU-1", kind));
    memories_.back()->Finish(UniqueFd());
    return Arena::Reserve("test", bytes, memories_.back());
  }
  absl::StatusOr<StorageTable::Opened> Lend(LentAllocation memory, uint64_t generation = 0,
                                            int lender = 7) {
    return user_.Lend(kPool, {.bytes = ByteCount(4096),
                              .memory = std::move(memory),
                              .generation = generation,
                              .lender = lender});
  }
  static UniqueFd FileOf(const std::string& text) { return *MakeSealedFile(text); }
  absl::StatusOr<StorageTable::Opened> Bind(std::vector<MemoryPiece> pieces,
                                            uint64_t generation = 0) {
    const PieceList list = {.allocations = {"pool"}, .pieces = std::move(pieces)};
    return user_.Bind(
        kWeights,
        {.bytes = ByteCount(100), .generation = generation, .list = FileOf(Encode(list))});
  }

  StorageTable storages_{
      [this](const StorageKey& /*key*/, ByteCount bytes) { return Make(Kind::kOwn, bytes); }};
  std::vector<std::shared_ptr<DeviceMemory>> memories_;
  std::vector<int64_t> bound_offsets_;  // in allocations, of the last binding
  UserMemory user_{
      storages_,
      {.lend =
           [this](const StorageKey& /*key*/, ByteCount bytes, const LentAllocation& memory) {
             return Make(memory.ipc_handle.empty() ? Kind::kLent : Kind::kLentByHandle, bytes);
           },
       .bind =
           [this](const StorageKey& /*key*/, ByteCount bytes,
                  const std::vector<BoundPiece>& pieces) {
             bound_offsets_.clear();
             for (const BoundPiece& piece : pieces) {
               bound_offsets_.push_back(piece.allocation_offset);
             }
             return Make(Kind::kBound, bytes);
           },
       .end = [](const StorageKey& /*key*/, const std::shared_ptr<Arena>& arena,
                 const absl::Status& why) { arena->device_memory()->Lose(why); }}};
};

TEST_F(UserMemoryTest, WhatIsLentIsAStorageThatIsThereOnce) {
  ASSERT_OK_AND_ASSIGN(const auto lent, Lend({.descriptor = FileOf("")}));
  EXPECT_EQ(lent.status.bytes, 4096);
  EXPECT_EQ(lent.status.generation, 1);
  EXPECT_THAT(Lend({.descriptor = FileOf("")}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("found one of generation 1")));
  EXPECT_THAT(Lend({}),
              IsRefused("either the descriptor of an allocation or an IPC handle, found none"));
  EXPECT_THAT(Lend({.descriptor = FileOf(""), .ipc_handle = "handle"}), IsRefused("found both"));
}

TEST_F(UserMemoryTest, ABindingIsReplacedByItsGenerationAlone) {
  ASSERT_OK(Lend({.descriptor = FileOf("")}));
  ASSERT_OK_AND_ASSIGN(const auto first, Bind({{.bytes = 100, .allocation_offset = 512}}));
  EXPECT_THAT(bound_offsets_, ElementsAre(512));
  EXPECT_EQ(first.status.generation, 1);
  EXPECT_THAT(Bind({}), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(Bind({}, 2),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("expected generation 2, found 1")));
  ASSERT_OK_AND_ASSIGN(const auto second, Bind({{.bytes = 100, .allocation_offset = 1024}}, 1));
  EXPECT_EQ(second.status.generation, 2);
  EXPECT_EQ(storages_.Open(kWeights)->arena.get(), second.arena.get());
  EXPECT_THAT(Bind({}, 1), StatusIs(absl::StatusCode::kAborted));
}

TEST_F(UserMemoryTest, ACommitMakesABindingOutOfDate) {
  ASSERT_OK(Lend({.descriptor = FileOf("")}));
  ASSERT_OK(Bind({{.bytes = 100}}));
  ASSERT_OK_AND_ASSIGN(auto lease, storages_.LeaseForWriting(kWeights, 100, {.shadow = false}));
  EXPECT_THAT(Bind({}, 1), StatusIs(absl::StatusCode::kFailedPrecondition,
                                    HasSubstr("expected no leases, found the worker's process")));
  ASSERT_OK(storages_.Commit(std::move(lease)));
  EXPECT_THAT(Bind({}, 1), StatusIs(absl::StatusCode::kAborted));
  EXPECT_OK(Bind({}, 2));
}

TEST_F(UserMemoryTest, AShadowIsRefused) {
  ASSERT_OK(Lend({.descriptor = FileOf("")}));
  ASSERT_OK(Bind({{.bytes = 100}}));
  for (const auto& [key, bytes] : {std::pair{kPool, 4096}, std::pair{kWeights, 100}}) {
    EXPECT_THAT(storages_.LeaseForWriting(key, bytes, {.shadow = true}),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("expected an operation in place, found shadow")));
  }
  EXPECT_EQ(storages_.Bytes().total(), 0);
}

// Bound to 100 bytes of the pool from 512 on.
class SharedBytesTest : public UserMemoryTest {
 protected:
  void SetUp() override {
    ASSERT_OK(Lend({.descriptor = FileOf("")}));
    ASSERT_OK(Bind({{.bytes = 100, .allocation_offset = 512}}));
  }
  absl::Status BindOther(int64_t allocation_offset) {
    const PieceList list = {.allocations = {"pool"},
                            .pieces = {{.bytes = 100, .allocation_offset = allocation_offset}}};
    return user_.Bind(kOther, {.bytes = ByteCount(100), .list = FileOf(Encode(list))}).status();
  }
  auto Read(const StorageKey& key) { return storages_.LeaseForReading(key, 100, "reader"); }
  auto Write(const StorageKey& key) {
    return storages_.LeaseForWriting(key, 100, {.shadow = false, .user = "writer"});
  }

  const StorageKey kOther{.name = "other", .device = {"a", 1}};
};

TEST_F(SharedBytesTest, TheyAreReadByManyAndWrittenByOne) {
  ASSERT_OK(BindOther(611));
  {
    ASSERT_OK_AND_ASSIGN(const auto reader, Read(kOther));
    EXPECT_OK(Read(kWeights));
    EXPECT_THAT(
        Write(kWeights),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 HasSubstr("\"weights\" of device a.1 shares bytes with storage \"other\" of "
                           "device a.1: expected no leases of that, found reader (reads)")));
    EXPECT_EQ(storages_.Status(kWeights)->state, StorageState::kReady);
  }
  ASSERT_OK_AND_ASSIGN(auto writer, Write(kWeights));
  EXPECT_THAT(Read(kOther),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found writer (writes)")));
  EXPECT_THAT(Write(kOther), StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_OK(storages_.Commit(std::move(writer)));
  EXPECT_OK(Read(kOther));
}

TEST_F(SharedBytesTest, WhatIsHalfWrittenIsNotReadAsAnotherStorage) {
  ASSERT_OK(BindOther(512));
  {
    ASSERT_OK_AND_ASSIGN(auto writer, Write(kWeights));
    writer.BeginWriting();
  }
  EXPECT_THAT(Read(kOther),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found it DIRTY")));
  ASSERT_OK_AND_ASSIGN(auto again, Write(kWeights));
  ASSERT_OK(storages_.Commit(std::move(again)));
  EXPECT_OK(Read(kOther));
}

TEST_F(SharedBytesTest, TheLoanItselfSharesAllOfIts) {
  ASSERT_OK_AND_ASSIGN(const auto reader, Read(kWeights));
  EXPECT_THAT(storages_.LeaseForWriting(kPool, 4096, {.shadow = false}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("shares bytes")));
}

TEST_F(SharedBytesTest, BytesOfTheirOwnAreUsedSideBySide) {
  ASSERT_OK(BindOther(612));
  ASSERT_OK_AND_ASSIGN(const auto writer, Write(kWeights));
  EXPECT_OK(Read(kOther));
  EXPECT_OK(Write(kOther));
}

TEST_F(UserMemoryTest, ALoanByAHandleEndsWithItsLendersConnection) {
  ASSERT_OK_AND_ASSIGN(const auto lent, Lend({.ipc_handle = "handle"}));
  user_.EndLoansOf(8);
  EXPECT_OK(lent.arena->status());
  user_.EndLoansOf(7);
  EXPECT_THAT(storages_.Open(kPool),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("allocation \"pool\": its lender has hung up")));
  // The name is free again.
  EXPECT_OK(Lend({.ipc_handle = "handle"}));
}

TEST_F(UserMemoryTest, ALoanByADescriptorStaysWithoutItsLender) {
  ASSERT_OK_AND_ASSIGN(const auto lent, Lend({.descriptor = FileOf("")}));
  user_.EndLoansOf(7);
  EXPECT_OK(lent.arena->status());
}

TEST_F(UserMemoryTest, AnotherLoanTakesThePlaceOfTheOneOfItsGenerationWhichIsLost) {
  ASSERT_OK_AND_ASSIGN(const auto first, Lend({.ipc_handle = "handle"}));
  ASSERT_OK_AND_ASSIGN(const auto second, Lend({.ipc_handle = "other"}, 1));
  EXPECT_EQ(second.status.generation, 2);
  EXPECT_THAT(first.arena->status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("allocation \"pool\": lent anew, as generation 2")));
  EXPECT_OK(second.arena->status());
  EXPECT_THAT(Lend({.ipc_handle = "late"}, 1),
              StatusIs(absl::StatusCode::kAborted,
                       HasSubstr("\"pool\" of device a.1: expected generation 1, found 2")));
  EXPECT_OK(second.arena->status());
}

TEST_F(UserMemoryTest, AnAllocationOfAnOlderGenerationIsNotBound) {
  ASSERT_OK(Lend({.ipc_handle = "handle"}));
  ASSERT_OK(Lend({.ipc_handle = "other"}, 1));
  const auto bind = [&](uint64_t generation) {
    const PieceList list = {
        .allocations = {"pool"}, .generations = {generation}, .pieces = {{.bytes = 100}}};
    return user_.Bind(kWeights, {.bytes = ByteCount(100), .list = FileOf(Encode(list))});
  };
  EXPECT_THAT(bind(1),
              StatusIs(absl::StatusCode::kAborted,
                       HasSubstr("\"pool\" of device a.1: expected generation 1, found 2")));
  EXPECT_OK(bind(2));
}

TEST_F(UserMemoryTest, OnlyAllocationsThatWereLentCanBeBound) {
  EXPECT_THAT(Bind({}), StatusIs(absl::StatusCode::kNotFound, HasSubstr("\"pool\"")));
  ASSERT_OK(storages_.Create(kPool, 4096));
  EXPECT_THAT(Bind({}), StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr("expected an allocation that was lent")));
  EXPECT_THAT(storages_.Bind(kPool, *Make(Kind::kBound, ByteCount(4096)), 1),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found other memory")));
}

TEST_F(UserMemoryTest, AListThatIsNotGoodIsRefused) {
  ASSERT_OK(Lend({.descriptor = FileOf("")}));
  const auto bind = [&](UniqueFd list) {
    return user_.Bind(kWeights, {.bytes = ByteCount(100), .list = std::move(list)});
  };
  EXPECT_THAT(bind(UniqueFd()), IsRefused("expected a sealed file that lists pieces"));
  EXPECT_THAT(bind(UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC))), IsRefused("a sealed one"));
  EXPECT_THAT(bind(FileOf("pieces")), IsRefused("a JSON object"));
  EXPECT_THAT(Bind({{.bytes = 101}}), IsRefused("within the 100 bytes of the storage"));
  EXPECT_THAT(Bind({{.bytes = 1, .allocation_offset = 4096}}), IsRefused("within the 4096 bytes"));
  EXPECT_THAT(storages_.Status(kWeights), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace crossmesh
