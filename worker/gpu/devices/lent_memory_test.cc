// Memory that user processes lend, as a GPU's process takes it in.

#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/testing/is_refused.h"
#include "common/testing/send_signal.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "tests/standin/plain_memory.h"
#include "tests/standin/stand_in.h"
#include "tests/standin/stand_in_gpu.h"
#include "worker/gpu/devices/storage_arenas.h"
#include "worker/gpu/devices/testing/stand_in_gpus.h"
#include "worker/memory/lent_allocation.h"

#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

class LentMemoryTest : public testing::Test {
 protected:
  void TearDown() override {
    gpus_.Stop();
    EXPECT_EQ(gpus_.Violations(), "");
  }
  static StorageKey KeyOf(const std::string& device) {
    return {.name = "weights", .device = *ParseDevice(device)};
  }
  static constexpr ByteCount kAllocation = ByteCount(2 << 20);

  // Memory that a user process has, as descriptors of it do, which others may close.
  UniqueFd Allocate() {
    const auto arena = gpus_.MakeArena("a.4", kAllocation.value());
    UniqueFd copy;
    (*arena)->device_memory()->WhenMade([&](const DeviceMemory::Made& made) {
      copy.Reset(fcntl(made->get(), F_DUPFD_CLOEXEC, 0));
    });
    return copy;
  }
  absl::StatusOr<std::shared_ptr<Arena>> Made(absl::StatusOr<std::shared_ptr<Arena>> arena) {
    RETURN_IF_ERROR(arena.status());
    gpus_.RunUntil([&] { return (*arena)->device_memory()->is_made().value_or(true); });
    RETURN_IF_ERROR((*arena)->status());
    return arena;
  }
  absl::StatusOr<std::shared_ptr<Arena>> Lend(LentAllocation memory,
                                              ByteCount bytes = kAllocation) {
    return Made(gpus_.devices().LendArena(KeyOf("a.4"), bytes, std::move(memory)));
  }
  absl::StatusOr<std::shared_ptr<Arena>> Bind(std::vector<BoundPiece> pieces) {
    return Made(gpus_.devices().BindArena(KeyOf("a.4"), ByteCount(1000), std::move(pieces)));
  }

  StandInGpus gpus_{{"a.4", "a.5"}};
};

TEST_F(LentMemoryTest, AnAllocationOfAnotherProcessIsMemoryOfTheGpuAndOutlivesBoth) {
  ASSERT_OK(gpus_.Open());
  ASSERT_OK_AND_ASSIGN(const auto lent, Lend({.descriptor = Allocate()}));
  EXPECT_EQ(lent->device_memory()->kind(), DeviceMemory::Kind::kLent);
  StandInGpus::Write(*lent, "bytes");
  SendSignal(gpus_["a.4"].process().pid(), SIGKILL);
  gpus_.AwaitReplacement(gpus_["a.4"]);
  EXPECT_OK(lent->status());
  EXPECT_EQ(StandInGpus::Read(*lent).substr(0, 5), "bytes");
}

TEST_F(LentMemoryTest, AddressesOfABoundRangeAreThoseOfItsPieces) {
  ASSERT_OK(gpus_.Open());
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<Arena> first, Lend({.descriptor = Allocate()}));
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<Arena> second, Lend({.descriptor = Allocate()}));
  const StorageArenas& arenas = gpus_["a.4"].arenas();
  const ArenaId first_id = arenas.Find(first->bytes().data())->place.arena;
  const ArenaId second_id = arenas.Find(second->bytes().data())->place.arena;
  ASSERT_OK_AND_ASSIGN(
      std::shared_ptr<Arena> bound,
      Bind({{.offset = 0, .bytes = 100, .allocation = second, .allocation_offset = 4096},
            {.offset = 128, .bytes = 64, .allocation = first, .allocation_offset = 512}}));
  ASSERT_OK_AND_ASSIGN(const auto in_first, arenas.Find(bound->bytes().data() + 138));
  EXPECT_EQ(in_first.place, (TilePlace{.arena = first_id, .offset = 522}));
  EXPECT_EQ(in_first.first, first->bytes().data());
  EXPECT_OK(StorageArenas::CheckHolds(in_first, ByteCount(54)));
  EXPECT_THAT(StorageArenas::CheckHolds(in_first, ByteCount(55)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("holds the 55 bytes of a tile, found one with 54")));
  EXPECT_EQ(arenas.Find(bound->bytes().data())->place,
            (TilePlace{.arena = second_id, .offset = 4096}));
  for (const int64_t nowhere : {100, 127, 192, 999}) {
    EXPECT_THAT(arenas.Find(bound->bytes().data() + nowhere),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr(absl::StrCat("a piece bound to offset ", nowhere))));
  }
  // A binding keeps what it is bound to.
  first.reset();
  gpus_.loop().RunOnce(absl::ZeroDuration());
  EXPECT_OK(arenas.Find(bound->bytes().data() + 138));
}

TEST_F(LentMemoryTest, WhatIsBoundToMemoryThatIsLostIsLost) {
  const TemporaryFolder system;
  gpus_.options.process.environment.push_back(
      absl::StrCat("CROSSMESH_STANDIN_NO_PERSISTENCE=", system.path()));
  ASSERT_OK(gpus_.Open());
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<Arena> lent, Lend({.descriptor = Allocate()}));
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<Arena> bound, Bind({{.bytes = 100, .allocation = lent}}));
  ASSERT_OK_AND_ASSIGN(std::shared_ptr<Arena> other, Bind({}));
  std::ofstream(system.PathOf("lives0"), std::ios::app) << '.';
  SendSignal(gpus_["a.4"].process().pid(), SIGKILL);
  gpus_.AwaitReplacement(gpus_["a.4"]);
  EXPECT_THAT(bound->status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("reset")));
  EXPECT_OK(other->status());
  EXPECT_THAT(Bind({{.bytes = 100, .allocation = lent}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("reset")));
}

// Memory of cudaMalloc that this process has.
class LentByHandleTest : public LentMemoryTest {
 protected:
  void SetUp() override {
    ASSERT_OK(gpus_.Open());
    ASSERT_OK_AND_ASSIGN(stand_in_, StandIn::Load());
    ASSERT_OK_AND_ASSIGN(gpu_, StandInGpu::Create(*stand_in_));
    ASSERT_OK_AND_ASSIGN(memory_, PlainMemory::Create(*stand_in_, 5000));
  }
  absl::StatusOr<std::shared_ptr<Arena>> LendByHandle(int64_t bytes = 5000) {
    return Lend({.ipc_handle = memory_->ipc_handle()}, ByteCount(bytes));
  }

  std::unique_ptr<StandIn> stand_in_;
  std::unique_ptr<StandInGpu> gpu_;
  std::unique_ptr<PlainMemory> memory_;
};

TEST_F(LentByHandleTest, ItsMemoryIsThereForTheNextProcessAsWell) {
  ASSERT_OK_AND_ASSIGN(const auto lent, LendByHandle());
  EXPECT_EQ(lent->device_memory()->kind(), DeviceMemory::Kind::kLentByHandle);
  EXPECT_EQ(lent->device_memory()->ipc_handle(), memory_->ipc_handle());
  SendSignal(gpus_["a.4"].process().pid(), SIGKILL);
  gpus_.AwaitReplacement(gpus_["a.4"]);
  EXPECT_OK(lent->status());
}

TEST_F(LentByHandleTest, ABlockMayBeLentTwice) {
  ASSERT_OK_AND_ASSIGN(auto first, LendByHandle());
  ASSERT_OK_AND_ASSIGN(const auto second, LendByHandle());
  first.reset();
  gpus_.loop().RunOnce(absl::ZeroDuration());
  EXPECT_OK(LendByHandle());
  EXPECT_OK(second->status());
  EXPECT_EQ(gpus_.Violations(), "");
}

TEST_F(LentByHandleTest, MoreThanTheAllocationHasIsRefused) {
  EXPECT_THAT(LendByHandle(5001), IsRefused("is not for 5001 bytes of GPU memory: it is for 5000"));
}

TEST_F(LentByHandleTest, WhatIsFreedMeanwhileIsLostWithWhatIsBoundToIt) {
  ASSERT_OK_AND_ASSIGN(const auto lent, LendByHandle());
  ASSERT_OK_AND_ASSIGN(const auto bound, Bind({{.bytes = 100, .allocation = lent}}));
  memory_.reset();
  SendSignal(gpus_["a.4"].process().pid(), SIGKILL);
  gpus_.AwaitReplacement(gpus_["a.4"]);
  EXPECT_THAT(bound->status(), IsRefused("CUDA_ERROR_INVALID_HANDLE"));
}

TEST_F(LentByHandleTest, TheEndOfALoanIsThatOfWhatIsBoundToIt) {
  ASSERT_OK_AND_ASSIGN(const auto lent, LendByHandle());
  ASSERT_OK_AND_ASSIGN(const auto bound, Bind({{.bytes = 100, .allocation = lent}}));
  gpus_.devices().EndLoan(KeyOf("a.4"), lent, absl::UnavailableError("hung up"));
  gpus_.loop().RunOnce(absl::ZeroDuration());
  EXPECT_THAT(bound->status(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("hung up")));
  // Closed once, also in the eyes of the next process.
  SendSignal(gpus_["a.4"].process().pid(), SIGKILL);
  gpus_.AwaitReplacement(gpus_["a.4"]);
  EXPECT_EQ(gpus_.Violations(), "");
}

// What the stand-in takes for mistakes of the caller's, and the driver refuses.
TEST(RefusedLendingTest, ADescriptorThatIsNotSoMuchMemoryOfTheGpuIsRefusedAndTheGpuStaysUp) {
  StandInGpus gpus({"a.4"});
  ASSERT_OK(gpus.Open());
  const auto lend = [&](UniqueFd allocation, int64_t bytes) {
    auto arena = gpus.devices().LendArena({.name = "pool", .device = {"a", 4}}, ByteCount(bytes),
                                          {.descriptor = std::move(allocation)});
    gpus.RunUntil([&] { return (*arena)->device_memory()->is_made().value_or(true); });
    return (*arena)->status();
  };
  EXPECT_THAT(lend(UniqueFd(memfd_create("other", MFD_CLOEXEC)), 2 << 20),
              IsRefused("allocation \"pool\": expected 2097152 bytes of GPU"));
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<Arena> arena, gpus.MakeArena("a.4", 2 << 20));
  UniqueFd copy;
  arena->device_memory()->WhenMade(
      [&](const DeviceMemory::Made& made) { copy.Reset(fcntl(made->get(), F_DUPFD_CLOEXEC, 0)); });
  EXPECT_THAT(lend(std::move(copy), 4 << 20), IsRefused("expected 4194304 bytes of GPU"));
  EXPECT_EQ(gpus["a.4"].state(), GpuDevice::State::kUp);
}

}  // namespace
}  // namespace crossmesh
