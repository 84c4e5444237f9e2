// The rules of the stand-in for NCCL that no test of the product breaks, with one rank.

#include "tests/standin/stand_in_fixture.h"

#include <utility>

namespace crossmesh {
namespace {

// A communicator of one rank, and memory of its GPU. A test ends what else it makes.
class NcclTest : public StandInTest {
 protected:
  void SetUp() override {
    StandInTest::SetUp();
    ASSERT_OK_AND_ASSIGN(communicator_, MakeCommunicator());
    ASSERT_OK_AND_ASSIGN(from_, gpu_->Allocate(4096));
    ASSERT_OK_AND_ASSIGN(to_, gpu_->Allocate(4096));
  }
  void TearDown() override {
    if (communicator_ != nullptr) {
      EXPECT_OK(gpu_->FinalizeAndDestroy(communicator_));
    }
    StandInTest::TearDown();
  }

  ncclUniqueId MakeId() const {
    ncclUniqueId id = {};
    EXPECT_OK(Check(nccl().ncclGetUniqueId(&id)));
    return id;
  }
  absl::StatusOr<ncclComm_t> MakeCommunicator() const {
    return gpu_->MakeCommunicator(1, MakeId(), 0);
  }
  ncclResult_t BeginInit(ncclComm_t& communicator, const ncclUniqueId& id) const {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return nccl().ncclCommInitRankConfig(&communicator, 1, id, 0, &config);
  }

  ncclResult_t SendByte() const {
    return nccl().ncclSend(from_.data(), 1, ncclUint8, 0, communicator_, gpu_->stream());
  }
  // The rank sends to itself.
  ncclResult_t Exchange(ncclComm_t communicator, std::span<std::byte> from,
                        std::span<std::byte> to) const {
    nccl().ncclGroupStart();
    nccl().ncclSend(from.data(), from.size(), ncclUint8, 0, communicator, gpu_->stream());
    nccl().ncclRecv(to.data(), to.size(), ncclUint8, 0, communicator, gpu_->stream());
    return nccl().ncclGroupEnd();
  }

  ncclComm_t communicator_ = nullptr;
  std::span<std::byte> from_;
  std::span<std::byte> to_;
};

TEST_F(NcclTest, NothingIsCalledWhileACallIsInProgress) {
  ASSERT_EQ(Exchange(communicator_, from_, to_), ncclInProgress);
  EXPECT_VIOLATION(nccl().ncclCommFinalize(communicator_),
                   "ncclCommFinalize: while ncclGroupEnd is in progress");
  EXPECT_VIOLATION(SendByte(), "ncclSend: while ncclGroupEnd is in progress");
  ASSERT_OK(gpu_->Poll(communicator_));
  ASSERT_OK(gpu_->Synchronize());
}

TEST_F(NcclTest, WhatIsSplitFromACommunicatorEndsBeforeIt) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclComm_t part = nullptr;
  EXPECT_VIOLATION(nccl().ncclCommSplit(communicator_, 0, 0, &part, &config),
                   "ncclCommSplit: a communicator whose calls block");
  config.blocking = 0;
  config.splitShare = 1;
  EXPECT_VIOLATION(nccl().ncclCommSplit(communicator_, 0, 0, &part, &config),
                   "ncclCommSplit: resources shared");
  config.splitShare = 0;
  EXPECT_VIOLATION(nccl().ncclCommSplit(communicator_, -2, 0, &part, &config),
                   "ncclCommSplit: color -2");
  ASSERT_EQ(nccl().ncclCommSplit(communicator_, 3, 0, &part, &config), ncclInProgress);
  ASSERT_OK(gpu_->Poll(communicator_));
  ASSERT_NE(part, nullptr);
  EXPECT_VIOLATION(nccl().ncclCommAbort(communicator_),
                   "ncclCommAbort: before 1 communicators that were split from it have ended");
  ASSERT_OK(Check(nccl().ncclCommAbort(part)));
}

TEST_F(NcclTest, NothingIsUnderWayAtASplit) {
  ASSERT_OK(stand_in_->SetFaults("stall_at=1"));
  ASSERT_EQ(Exchange(communicator_, from_, to_), ncclInProgress);
  ASSERT_OK(gpu_->Poll(communicator_));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t part = nullptr;
  EXPECT_VIOLATION(nccl().ncclCommSplit(communicator_, 0, 0, &part, &config),
                   "ncclCommSplit: while operations of the communicator are under way");
  ASSERT_OK(Check(nccl().ncclCommAbort(communicator_)));
  communicator_ = nullptr;
  ASSERT_OK(gpu_->Synchronize());
}

TEST_F(NcclTest, AGroupIsInProgressForAWhile) {
  ASSERT_EQ(Exchange(communicator_, from_, to_), ncclInProgress);
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(nccl().ncclCommGetAsyncError(communicator_, &state), ncclSuccess);
  EXPECT_EQ(state, ncclInProgress);
  ASSERT_OK(gpu_->Poll(communicator_));
  ASSERT_OK(gpu_->Synchronize());
}

TEST_F(NcclTest, TheEndIsCalledOnAThreadOfTheDevice) {
  CUcontext context = nullptr;
  ASSERT_OK(Check(driver().cuCtxGetCurrent(&context)));
  ASSERT_OK(Check(driver().cuCtxSetCurrent(nullptr)));
  EXPECT_VIOLATION(nccl().ncclCommAbort(communicator_),
                   "ncclCommAbort: this thread has no current context, the communicator is on "
                   "device 0");
  EXPECT_OK(Check(driver().cuCtxSetCurrent(context)));
}

TEST_F(NcclTest, TheStreamIsNotReliedOnWhileAGroupIsInProgress) {
  CUevent event = nullptr;
  ASSERT_OK(Check(driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING)));
  ASSERT_EQ(Exchange(communicator_, from_, to_), ncclInProgress);
  EXPECT_VIOLATION(driver().cuEventRecord(event, gpu_->stream()),
                   "the stream is used while ncclGroupEnd is in progress");
  EXPECT_VIOLATION(driver().cuStreamSynchronize(gpu_->stream()), "is in progress");
  ASSERT_OK(gpu_->Poll(communicator_));
  EXPECT_OK(Check(driver().cuEventRecord(event, gpu_->stream())));
  ASSERT_OK(gpu_->Synchronize());
  EXPECT_OK(Check(driver().cuEventDestroy(event)));
}

TEST_F(NcclTest, NorByAnotherCommunicator) {
  ASSERT_OK_AND_ASSIGN(ncclComm_t other, MakeCommunicator());
  ASSERT_EQ(Exchange(communicator_, from_, to_), ncclInProgress);
  EXPECT_VIOLATION(Exchange(other, from_, to_), "the stream is held by another communicator");
  ASSERT_OK(gpu_->Poll(communicator_));
  ASSERT_OK(gpu_->Synchronize());
  EXPECT_OK(gpu_->FinalizeAndDestroy(other));
}

TEST_F(NcclTest, ACommunicatorIsNotUsedAfterAnAbort) {
  const ncclComm_t aborted = std::exchange(communicator_, nullptr);
  EXPECT_OK(Check(nccl().ncclCommAbort(aborted)));
  EXPECT_VIOLATION(nccl().ncclCommFinalize(aborted), "ncclCommFinalize: after ncclCommAbort");
  ncclResult_t state = ncclSuccess;
  EXPECT_VIOLATION(nccl().ncclCommGetAsyncError(aborted, &state), "after ncclCommAbort");
  EXPECT_VIOLATION(nccl().ncclCommAbort(aborted), "ncclCommAbort: after ncclCommAbort");
  EXPECT_VIOLATION(nccl().ncclCommDestroy(aborted), "after ncclCommAbort");
}

TEST_F(NcclTest, AfterFinalizeOnlyDestroyIsLeft) {
  ASSERT_OK(Check(nccl().ncclCommFinalize(communicator_)));
  ASSERT_OK(gpu_->Poll(communicator_));
  EXPECT_VIOLATION(SendByte(), "after ncclCommFinalize");
  const ncclComm_t destroyed = std::exchange(communicator_, nullptr);
  EXPECT_OK(Check(nccl().ncclCommDestroy(destroyed)));
  EXPECT_VIOLATION(nccl().ncclCommDestroy(destroyed), "after ncclCommDestroy");
}

TEST_F(NcclTest, AHealthyCommunicatorIsFinalizedBeforeItIsDestroyed) {
  EXPECT_VIOLATION(nccl().ncclCommDestroy(communicator_), "without ncclCommFinalize");
}

TEST_F(NcclTest, AfterRevokeNothingCommunicates) {
  ASSERT_OK(Check(nccl().ncclCommRevoke(communicator_, 0)));
  ASSERT_OK(gpu_->Poll(communicator_));
  EXPECT_VIOLATION(SendByte(), "after ncclCommRevoke");
  EXPECT_VIOLATION(nccl().ncclCommFinalize(communicator_), "after ncclCommRevoke");
  EXPECT_VIOLATION(nccl().ncclCommRevoke(communicator_, 0), "after ncclCommRevoke");
  EXPECT_OK(Check(nccl().ncclCommDestroy(std::exchange(communicator_, nullptr))));
}

TEST_F(NcclTest, AGroupIsOfOneCommunicator) {
  ASSERT_OK_AND_ASSIGN(ncclComm_t other, MakeCommunicator());
  ASSERT_OK(Check(nccl().ncclGroupStart()));
  ASSERT_OK(Check(SendByte()));
  EXPECT_VIOLATION(nccl().ncclRecv(to_.data(), 1, ncclUint8, 0, other, gpu_->stream()),
                   "in a group of another communicator");
  // What failed in the group fails its end, and nothing of it is done.
  EXPECT_EQ(nccl().ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_OK(gpu_->FinalizeAndDestroy(other));
}

TEST_F(NcclTest, AGroupIsOfCollectivesOrOfMessages) {
  ASSERT_OK(Check(nccl().ncclGroupStart()));
  ASSERT_OK(Check(SendByte()));
  ASSERT_OK(Check(nccl().ncclBroadcast(to_.data(), to_.data(), 1, ncclUint8, 0, communicator_,
                                       gpu_->stream())));
  EXPECT_VIOLATION(nccl().ncclGroupEnd(), "a group of collectives and of sends and receives");
}

TEST_F(NcclTest, LifeHasNoPlaceInAGroup) {
  ASSERT_OK(Check(nccl().ncclGroupStart()));
  EXPECT_VIOLATION(nccl().ncclCommFinalize(communicator_), "between ncclGroupStart");
  EXPECT_VIOLATION(nccl().ncclCommAbort(communicator_), "between ncclGroupStart");
  ncclComm_t other = nullptr;
  EXPECT_VIOLATION(BeginInit(other, MakeId()), "between ncclGroupStart");
  EXPECT_OK(Check(nccl().ncclGroupEnd()));
}

TEST_F(NcclTest, BuffersOfAGroupDoNotOverlap) {
  EXPECT_VIOLATION(Exchange(communicator_, from_, from_.subspan(0, 4096)),
                   "buffers of the group overlap");
}

TEST_F(NcclTest, BuffersAreDeviceMemory) {
  char host[8] = {};
  EXPECT_VIOLATION(nccl().ncclSend(host, 8, ncclUint8, 0, communicator_, gpu_->stream()),
                   "of 8 bytes, is not all device memory");
  // Rounded up to pages, but not for ever.
  EXPECT_VIOLATION(
      nccl().ncclSend(from_.data(), 3 << 20, ncclUint8, 0, communicator_, gpu_->stream()),
      "is not all device memory");
}

TEST_F(NcclTest, ArgumentsAreLookedAt) {
  EXPECT_VIOLATION(nccl().ncclSend(from_.data(), 1, ncclUint8, 1, communicator_, gpu_->stream()),
                   "rank 1 of 1 ranks");
  EXPECT_VIOLATION(nccl().ncclSend(from_.data(), 1, ncclUint8, 0, communicator_, nullptr),
                   "the stream is a default stream");
  ncclComm_t other = nullptr;
  EXPECT_VIOLATION(nccl().ncclCommInitRankConfig(&other, 1, MakeId(), 0, nullptr),
                   "a communicator whose calls block");
  ncclConfig_t config = {};
  EXPECT_VIOLATION(nccl().ncclCommInitRankConfig(&other, 1, MakeId(), 0, &config),
                   "not begun with NCCL_CONFIG_INITIALIZER");
  EXPECT_EQ(other, nullptr);
}

TEST_F(NcclTest, BuffersAreDeregisteredBeforeTheyGo) {
  void* registration = nullptr;
  ASSERT_OK(Check(nccl().ncclCommRegister(communicator_, from_.data(), 4096, &registration)));
  EXPECT_VIOLATION(driver().cuMemUnmap(reinterpret_cast<CUdeviceptr>(from_.data()), 2 << 20),
                   "still registered with 1 communicators");
  ASSERT_OK(Check(nccl().ncclCommFinalize(communicator_)));
  ASSERT_OK(gpu_->Poll(communicator_));
  EXPECT_VIOLATION(nccl().ncclCommDestroy(communicator_), "with 1 buffers still registered");
  EXPECT_OK(Check(nccl().ncclCommDeregister(communicator_, registration)));
  EXPECT_VIOLATION(nccl().ncclCommDeregister(communicator_, registration), "no such registration");
  EXPECT_OK(Check(nccl().ncclCommDestroy(std::exchange(communicator_, nullptr))));
}

TEST_F(NcclTest, MemoryThatCannotBeSharedIsNotRegistered) {
  const MappedMemory memory = MapMemory(/*is_shareable=*/false);
  ASSERT_OK(Check(SetAccess(memory.address)));
  void* registration = nullptr;
  EXPECT_VIOLATION(nccl().ncclCommRegister(communicator_, reinterpret_cast<void*>(memory.address),
                                           4096, &registration),
                   "not memory of ncclMemAlloc or cuMemCreate");
  Unmap(memory);
}

TEST_F(NcclTest, CommunicatorsAreMadeOneAfterTheOther) {
  ASSERT_OK_AND_ASSIGN(ncclComm_t first, gpu_->InitCommunicator(2, MakeId(), 0));
  ncclComm_t second = nullptr;
  EXPECT_VIOLATION(BeginInit(second, MakeId()),
                   "while another communicator of this process is being made");
  EXPECT_OK(Check(nccl().ncclCommAbort(first)));
  ASSERT_OK_AND_ASSIGN(second, MakeCommunicator());
  EXPECT_OK(gpu_->FinalizeAndDestroy(second));
}

}  // namespace
}  // namespace crossmesh
