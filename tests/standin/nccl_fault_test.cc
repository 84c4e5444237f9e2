// Each fault of the stand-in for NCCL caused once, with one rank.

#include "tests/standin/nccl_fixture.h"

#include <algorithm>
#include <thread>

#include <absl/strings/match.h>

namespace crossmesh {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

class NcclFaultTest : public NcclTest {};

TEST_F(NcclFaultTest, ACallIsInProgressForAsManyPolls) {
  ASSERT_OK(stand_in_->SetFaults("in_progress_polls=5"));
  ASSERT_OK_AND_ASSIGN(ncclComm_t communicator, gpu_->InitCommunicator(1, MakeId(), 0));
  EXPECT_THAT(gpu_->Poll(communicator), IsOkAndHolds(5));
  ASSERT_OK(Check(nccl().ncclCommFinalize(communicator)));
  EXPECT_THAT(gpu_->Poll(communicator), IsOkAndHolds(5));
  EXPECT_OK(Check(nccl().ncclCommDestroy(communicator)));
}

TEST_F(NcclFaultTest, AnInitThatNeverEndsIsAborted) {
  ASSERT_OK(stand_in_->SetFaults("init_never_ends=1"));
  ASSERT_OK_AND_ASSIGN(const int64_t before, gpu_->FreeBytes());
  ASSERT_OK_AND_ASSIGN(ncclComm_t communicator, gpu_->InitCommunicator(1, MakeId(), 0));
  ncclResult_t state = ncclSuccess;
  for (int poll = 0; poll < 1000; ++poll) {
    ASSERT_OK(Check(nccl().ncclCommGetAsyncError(communicator, &state)));
    ASSERT_EQ(state, ncclInProgress);
  }
  EXPECT_OK(Check(nccl().ncclCommAbort(communicator)));
  EXPECT_THAT(gpu_->FreeBytes(), IsOkAndHolds(before));
  ASSERT_OK(stand_in_->SetFaults(""));
  ASSERT_OK_AND_ASSIGN(communicator, MakeCommunicator());
  EXPECT_OK(gpu_->FinalizeAndDestroy(communicator));
}

TEST_F(NcclFaultTest, AnInitFails) {
  ASSERT_OK(stand_in_->SetFaults("init_fails=1"));
  ASSERT_OK_AND_ASSIGN(ncclComm_t communicator, gpu_->InitCommunicator(1, MakeId(), 0));
  EXPECT_THAT(gpu_->Poll(communicator),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("injected fault init_fails")));
  EXPECT_OK(Check(nccl().ncclCommAbort(communicator)));
}

TEST_F(NcclFaultTest, AnAsynchronousErrorIsTheStateAndNothingIsCalledAfter) {
  ASSERT_OK_AND_ASSIGN(ncclComm_t communicator, MakeCommunicator());
  ASSERT_OK_AND_ASSIGN(const std::span<std::byte> memory, gpu_->Allocate(4096));
  ASSERT_OK(stand_in_->SetFaults("async_error_at=2"));
  ASSERT_EQ(Exchange(communicator, memory.subspan(0, 10), memory.subspan(10, 10)), ncclInProgress);
  ASSERT_OK(gpu_->Poll(communicator));
  EXPECT_THAT(gpu_->Poll(communicator),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("injected fault async_error_at")));
  EXPECT_THAT(Check(Exchange(communicator, memory.subspan(0, 10), memory.subspan(10, 10))),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(driver().cuStreamQuery(gpu_->stream()), CUDA_ERROR_NOT_READY);
  EXPECT_OK(Check(nccl().ncclCommAbort(communicator)));
  EXPECT_OK(gpu_->Synchronize());
  // The next one works.
  ASSERT_OK_AND_ASSIGN(communicator, MakeCommunicator());
  ASSERT_EQ(Exchange(communicator, memory.subspan(0, 10), memory.subspan(10, 10)), ncclInProgress);
  ASSERT_OK(gpu_->Poll(communicator));
  ASSERT_OK(gpu_->Synchronize());
  EXPECT_OK(gpu_->FinalizeAndDestroy(communicator));
}

TEST_F(NcclFaultTest, AStallIsSilentAndEndsByAnAbort) {
  ASSERT_OK_AND_ASSIGN(ncclComm_t communicator, MakeCommunicator());
  ASSERT_OK_AND_ASSIGN(const std::span<std::byte> memory, gpu_->Allocate(4096));
  ASSERT_OK(stand_in_->SetFaults("stall_at=1"));
  ASSERT_EQ(Exchange(communicator, memory.subspan(0, 10), memory.subspan(10, 10)), ncclInProgress);
  ASSERT_OK(gpu_->Poll(communicator));
  for (int poll = 0; poll < 1000; ++poll) ASSERT_OK(gpu_->Poll(communicator));
  EXPECT_EQ(driver().cuStreamQuery(gpu_->stream()), CUDA_ERROR_NOT_READY);
  EXPECT_OK(Check(nccl().ncclCommAbort(communicator)));
  EXPECT_OK(gpu_->Synchronize());
}

TEST_F(NcclFaultTest, AStallEndsByARevoke) {
  ASSERT_OK_AND_ASSIGN(ncclComm_t communicator, MakeCommunicator());
  ASSERT_OK_AND_ASSIGN(const std::span<std::byte> memory, gpu_->Allocate(4096));
  ASSERT_OK(stand_in_->SetFaults("stall_at=1"));
  ASSERT_EQ(Exchange(communicator, memory.subspan(0, 10), memory.subspan(10, 10)), ncclInProgress);
  ASSERT_OK(gpu_->Poll(communicator));
  ASSERT_OK(Check(nccl().ncclCommRevoke(communicator, 0)));
  ASSERT_OK(gpu_->Poll(communicator));
  EXPECT_OK(gpu_->Synchronize());
  EXPECT_OK(Check(nccl().ncclCommDestroy(communicator)));
}

TEST_F(NcclFaultTest, AByteChangesOnTheWay) {
  ASSERT_OK_AND_ASSIGN(ncclComm_t communicator, MakeCommunicator());
  ASSERT_OK_AND_ASSIGN(const std::span<std::byte> memory, gpu_->Allocate(1 << 20));
  const auto from = memory.subspan(0, 300'000);
  const auto to = memory.subspan(400'000, 300'000);
  ASSERT_OK(stand_in_->SetFaults("corrupt_at=2"));
  for (const int changed : {1, 0}) {
    ASSERT_EQ(Exchange(communicator, from, to), ncclInProgress);
    ASSERT_OK(gpu_->Poll(communicator));
    ASSERT_OK(gpu_->Synchronize());
    EXPECT_EQ(std::ranges::count_if(to, [](std::byte byte) { return byte != std::byte{0}; }),
              changed);
  }
  EXPECT_OK(gpu_->FinalizeAndDestroy(communicator));
}

TEST_F(NcclFaultTest, AllocationsOfNcclRunOutToo) {
  ASSERT_OK(stand_in_->SetFaults("out_of_memory_at=1"));
  EXPECT_THAT(gpu_->Allocate(100),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("injected fault out_of_memory_at")));
  EXPECT_OK(gpu_->Allocate(100));
}

TEST_F(NcclFaultTest, TwoThreadsDoNotUseOneCommunicator) {
  const ncclComm_t communicator = MakeBlocking();
  ASSERT_OK_AND_ASSIGN(const std::span<std::byte> memory, gpu_->Allocate(4096));
  ASSERT_OK(stand_in_->SetFaults("stall_at=1"));
  ASSERT_OK(Check(Exchange(communicator, memory.subspan(0, 10), memory.subspan(10, 10))));
  // Waits for the operation that stalls, once no other call is in its way.
  std::thread blocked([&] {
    absl::Status status;
    do {
      status = Check(nccl().ncclCommFinalize(communicator));
    } while (absl::StrContains(status.message(), "another thread is in a call"));
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("aborted")));
  });
  int count = 0;
  while (nccl().ncclCommCount(communicator, &count) == ncclSuccess) std::this_thread::yield();
  EXPECT_THAT(TakeViolations(),
              Contains(HasSubstr("ncclCommCount: while another thread is in a call")));
  // This alone may be called meanwhile, and ends the other call.
  EXPECT_OK(Check(nccl().ncclCommAbort(communicator)));
  blocked.join();
  TakeViolations();
}

}  // namespace
}  // namespace crossmesh
