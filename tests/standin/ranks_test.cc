// What ranks must agree on, each in a process; and what a process reads from its environment.

#include "common/base/status_macros.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "tests/standin/plain_memory.h"
#include "tests/standin/rank_processes.h"
#include "tests/standin/stand_in.h"
#include "tests/standin/stand_in_gpu.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A rank of two in its process.
struct Rank {
  int rank = 0;
  std::unique_ptr<StandIn> stand_in;
  std::unique_ptr<StandInGpu> gpu;
  ncclComm_t communicator = nullptr;

  const NcclApi& nccl() const { return stand_in->nccl(); }
};

absl::StatusOr<Rank> Join(int number, Meeting& meeting, int ranks = 2) {
  setenv("CROSSMESH_STANDIN_FIRST_DEVICE", absl::StrCat(number).c_str(), 1);
  Rank rank = {.rank = number};
  ASSIGN_OR_RETURN(rank.stand_in, StandIn::Load());
  ASSIGN_OR_RETURN(rank.gpu, StandInGpu::Create(*rank.stand_in));
  if (number == 0)
    RETURN_IF_ERROR(rank.stand_in->Check(rank.nccl().ncclGetUniqueId(&meeting.id), ""));
  meeting.Wait();
  ASSIGN_OR_RETURN(rank.communicator, rank.gpu->MakeCommunicator(ranks, meeting.id, number));
  return rank;
}

// Two ranks whose calls differ; both are told, at the next call at the latest.
std::vector<std::string> RunTwo(absl::FunctionRef<ncclResult_t(const Rank&, void*)> communicate) {
  return RunRanks(2, [&](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(Rank rank, Join(number, meeting));
    ASSIGN_OR_RETURN(const auto memory, rank.gpu->Allocate(4096));
    absl::Status status = rank.stand_in->Check(communicate(rank, memory.data()), "");
    while (status.ok()) status = rank.gpu->Poll(rank.communicator);
    RETURN_IF_ERROR(rank.stand_in->Check(rank.nccl().ncclCommAbort(rank.communicator), ""));
    if (rank.stand_in->Violations().size() != 1) return absl::InternalError("not one violation");
    return status;
  });
}

TEST(RanksTest, CollectivesInAnotherOrderAreTold) {
  const auto results = RunTwo([](const Rank& rank, void* memory) {
    return rank.rank == 0 ? rank.nccl().ncclAllReduce(memory, memory, 10, ncclInt32, ncclSum,
                                                      rank.communicator, rank.gpu->stream())
                          : rank.nccl().ncclBroadcast(memory, memory, 10, ncclInt32, 0,
                                                      rank.communicator, rank.gpu->stream());
  });
  EXPECT_THAT(results, Each(AllOf(HasSubstr("the ranks differ in call 1 of the communicator"),
                                  HasSubstr("makes ncclAllReduce of 10 int32, root 0, sum"),
                                  HasSubstr("makes ncclBroadcast of 10 int32, root 0"))));
}

TEST(RanksTest, MessagesOfOtherSizesAreTold) {
  const auto results = RunTwo([](const Rank& rank, void* memory) {
    return rank.rank == 0 ? rank.nccl().ncclSend(memory, 100, ncclUint8, 1, rank.communicator,
                                                 rank.gpu->stream())
                          : rank.nccl().ncclRecv(memory, 200, ncclUint8, 0, rank.communicator,
                                                 rank.gpu->stream());
  });
  EXPECT_THAT(results,
              Each(AllOf(HasSubstr("message 1 from rank 0 to rank 1"),
                         HasSubstr("sent as 100 bytes"), HasSubstr("received as 200 bytes"))));
}

TEST(RanksTest, AMessageOnTheOtherSideOfACollectiveIsTold) {
  const auto results = RunTwo([](const Rank& rank, void* memory) {
    const auto collective = [&] {
      rank.nccl().ncclBroadcast(memory, memory, 10, ncclInt32, 0, rank.communicator,
                                rank.gpu->stream());
      return rank.gpu->Poll(rank.communicator);
    };
    if (rank.rank == 1) collective().IgnoreError();
    const ncclResult_t result =
        rank.rank == 0
            ? rank.nccl().ncclSend(memory, 100, ncclUint8, 1, rank.communicator, rank.gpu->stream())
            : rank.nccl().ncclRecv(memory, 100, ncclUint8, 0, rank.communicator,
                                   rank.gpu->stream());
    if (rank.rank == 0) rank.gpu->Poll(rank.communicator).IgnoreError();
    return rank.rank == 0 ? rank.nccl().ncclBroadcast(memory, memory, 10, ncclInt32, 0,
                                                      rank.communicator, rank.gpu->stream())
                          : result;
  });
  EXPECT_THAT(results, Each(HasSubstr("message 1 from rank 0 to rank 1 is sent as 100 bytes")));
}

ncclResult_t Split(const Rank& rank, int color, int key, ncclComm_t& made) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return rank.nccl().ncclCommSplit(rank.communicator, color, key, &made, &config);
}

// Of five ranks two even ones and two odd ones, in the opposite order, and one in neither; twice,
// and each part ends before the whole.
TEST(RanksTest, ASplitGivesEachColorACommunicatorInTheOrderOfKeys) {
  const auto results = RunRanks(5, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(Rank rank, Join(number, meeting, 5));
    ASSIGN_OR_RETURN(const auto memory, rank.gpu->Allocate(4096));
    ASSIGN_OR_RETURN(const int64_t free_before, rank.gpu->FreeBytes());
    for (int round = 0; round < 2; ++round) {
      ncclComm_t part = nullptr;
      const int color = number == 4 ? NCCL_SPLIT_NOCOLOR : number % 2;
      RETURN_IF_ERROR(rank.stand_in->Check(Split(rank, color, -number, part), "ncclCommSplit"));
      if (part != nullptr) return absl::InternalError("a part while the split is in progress");
      RETURN_IF_ERROR(rank.gpu->Poll(rank.communicator));
      if ((part == nullptr) != (number == 4)) return absl::InternalError("part");
      if (part == nullptr) continue;
      ASSIGN_OR_RETURN(const int64_t free_bytes, rank.gpu->FreeBytes());
      if (free_bytes >= free_before) return absl::InternalError("a part that takes no memory");
      memory[0] = static_cast<std::byte>(number);
      RETURN_IF_ERROR(
          rank.stand_in->Check(rank.nccl().ncclAllGather(memory.data(), memory.data() + 8, 1,
                                                         ncclUint8, part, rank.gpu->stream()),
                               "ncclAllGather"));
      RETURN_IF_ERROR(rank.gpu->Poll(part));
      RETURN_IF_ERROR(rank.gpu->Synchronize());
      if (memory[8] != std::byte(2 + number % 2) || memory[9] != std::byte(number % 2)) {
        return absl::InternalError("not in the order of keys");
      }
      RETURN_IF_ERROR(rank.gpu->FinalizeAndDestroy(part));
    }
    RETURN_IF_ERROR(rank.gpu->FinalizeAndDestroy(rank.communicator));
    return rank.stand_in->Violations().empty() ? absl::OkStatus()
                                               : absl::InternalError("violations");
  });
  EXPECT_THAT(results, Each(IsEmpty()));
}

TEST(RanksTest, ASplitIsACallThatAllRanksMakeInOneOrder) {
  const auto results = RunTwo([](const Rank& rank, void* memory) {
    ncclComm_t part = nullptr;
    return rank.rank == 0 ? Split(rank, 0, 0, part)
                          : rank.nccl().ncclBroadcast(memory, memory, 10, ncclInt32, 0,
                                                      rank.communicator, rank.gpu->stream());
  });
  EXPECT_THAT(results, Each(AllOf(HasSubstr("the ranks differ in call 1 of the communicator"),
                                  HasSubstr("makes ncclCommSplit"))));
}

// What is under way in a part goes on; a split that has not been made ends with the whole.
TEST(RanksTest, AnAbortEndsWhatIsBeingSplitAndNothingElse) {
  const auto results = RunRanks(2, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(Rank rank, Join(number, meeting));
    ASSIGN_OR_RETURN(const int64_t free_before, rank.gpu->FreeBytes());
    ncclComm_t part = nullptr;
    if (number == 0) {
      RETURN_IF_ERROR(rank.stand_in->Check(Split(rank, 0, 0, part), "ncclCommSplit"));
      for (int i = 0; i < 100; ++i) {
        ncclResult_t state = ncclSuccess;
        rank.nccl().ncclCommGetAsyncError(rank.communicator, &state);
        if (state != ncclInProgress) return absl::InternalError("a split of one rank");
      }
    }
    RETURN_IF_ERROR(
        rank.stand_in->Check(rank.nccl().ncclCommAbort(rank.communicator), "ncclCommAbort"));
    ASSIGN_OR_RETURN(const int64_t free_bytes, rank.gpu->FreeBytes());
    if (part != nullptr || free_bytes <= free_before) return absl::InternalError("a part is left");
    return rank.stand_in->Violations().empty() ? absl::OkStatus()
                                               : absl::InternalError("violations");
  });
  EXPECT_THAT(results, Each(IsEmpty()));
}

// As NCCL, which connects two ranks when they have the first message.
TEST(RanksTest, TheFirstGroupWaitsForThePeerAndTakesMemory) {
  const auto results = RunRanks(2, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(Rank rank, Join(number, meeting));
    ASSIGN_OR_RETURN(const auto memory, rank.gpu->Allocate(4096));
    ASSIGN_OR_RETURN(const int64_t free_before, rank.gpu->FreeBytes());
    if (number == 1) meeting.Wait();
    const ncclResult_t begun = number == 0
                                   ? rank.nccl().ncclSend(memory.data(), 100, ncclUint8, 1,
                                                          rank.communicator, rank.gpu->stream())
                                   : rank.nccl().ncclRecv(memory.data(), 100, ncclUint8, 0,
                                                          rank.communicator, rank.gpu->stream());
    RETURN_IF_ERROR(rank.stand_in->Check(begun, ""));
    if (number == 0) {
      for (int poll = 0; poll < 1000; ++poll) {
        ncclResult_t state = ncclSuccess;
        rank.nccl().ncclCommGetAsyncError(rank.communicator, &state);
        if (state != ncclInProgress) return absl::InternalError("it went on without its peer");
      }
      meeting.Wait();
    }
    RETURN_IF_ERROR(rank.gpu->Poll(rank.communicator));
    RETURN_IF_ERROR(rank.gpu->Synchronize());
    ASSIGN_OR_RETURN(const int64_t free_after, rank.gpu->FreeBytes());
    uint64_t bytes = 0;
    RETURN_IF_ERROR(rank.stand_in->Check(
        rank.nccl().ncclCommMemStats(rank.communicator, ncclStatGpuMemTotal, &bytes), ""));
    RETURN_IF_ERROR(rank.gpu->FinalizeAndDestroy(rank.communicator));
    return absl::UnknownError(absl::StrCat(free_before - free_after, " of ", bytes));
  });
  EXPECT_THAT(results, ElementsAre(HasSubstr(absl::StrCat(0, " of ", 16 << 20)),
                                   HasSubstr(absl::StrCat(4 << 20, " of ", 20 << 20))));
}

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string RunOne(absl::FunctionRef<absl::Status()> body) {
  return RunRanks(1, [&](int, Meeting&) { return body(); })[0];
}

TEST(ProcessTest, AnOldNcclIsNotLoaded) {
  EXPECT_THAT(RunOne([]() -> absl::Status {
                setenv("CROSSMESH_STANDIN_NCCL_VERSION", "2.27.7", 1);
                return StandIn::Load().status();
              }),
              AllOf(HasSubstr("NCCL 2.27.7"), HasSubstr("expected version 2.28.9 or later")));
}

TEST(ProcessTest, TheReportHasWhatWasDoneWrong) {
  const TemporaryFolder folder;
  const std::string report = folder.PathOf("report");
  EXPECT_THAT(RunOne([&]() -> absl::Status {
                setenv("CROSSMESH_STANDIN_REPORT", report.c_str(), 1);
                ASSIGN_OR_RETURN(const auto stand_in, StandIn::Load());
                ASSIGN_OR_RETURN(const auto gpu, StandInGpu::Create(*stand_in));
                stand_in->driver().cuStreamSynchronize(nullptr);
                return absl::OkStatus();
              }),
              IsEmpty());
  EXPECT_THAT(ReadFile(report), AllOf(HasSubstr("Crossmesh stand-in, process "),
                                      HasSubstr("cuStreamSynchronize: a default stream")));
}

// One process has plain memory, and another one opens it by its handle, which `open` is given.
std::vector<std::string> RunLenderAnd(
    absl::FunctionRef<absl::Status(const StandIn&, const CUipcMemHandle&, Meeting&)> open,
    bool frees = false) {
  return RunRanks(2, [&](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto stand_in, StandIn::Load());
    ASSIGN_OR_RETURN(const auto gpu, StandInGpu::Create(*stand_in));
    std::unique_ptr<PlainMemory> memory;
    if (number == 0) {
      ASSIGN_OR_RETURN(memory, PlainMemory::Create(*stand_in, 4096));
      memory->bytes()[7] = std::byte{42};
      memory->ipc_handle().copy(meeting.id.internal, sizeof(CUipcMemHandle));
      if (frees) memory.reset();
    }
    meeting.Wait();
    absl::Status status;
    if (number == 1) {
      CUipcMemHandle handle;
      std::memcpy(&handle, meeting.id.internal, sizeof(handle));
      status = open(*stand_in, handle, meeting);
    }
    meeting.Wait();
    return status;
  });
}

absl::StatusOr<CUdeviceptr> Open(const StandIn& stand_in, const CUipcMemHandle& handle) {
  CUdeviceptr address = 0;
  RETURN_IF_ERROR(stand_in.Check(
      stand_in.driver().cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
      "cuIpcOpenMemHandle"));
  return address;
}

TEST(IpcMemoryTest, AHandleOpenedTwiceIsOnePlaceUntilItWasClosedTwice) {
  EXPECT_THAT(RunLenderAnd([](const StandIn& stand_in, const CUipcMemHandle& handle, Meeting&) {
                const auto expect = [](bool is_so, absl::string_view what) {
                  return is_so ? absl::OkStatus() : absl::UnknownError(what);
                };
                ASSIGN_OR_RETURN(const CUdeviceptr first, Open(stand_in, handle));
                ASSIGN_OR_RETURN(const CUdeviceptr second, Open(stand_in, handle));
                RETURN_IF_ERROR(expect(first == second, "one address"));
                RETURN_IF_ERROR(expect(reinterpret_cast<const char*>(first)[7] == 42, "its bytes"));
                const DriverApi& driver = stand_in.driver();
                RETURN_IF_ERROR(stand_in.Check(driver.cuIpcCloseMemHandle(first), "first close"));
                RETURN_IF_ERROR(stand_in.Check(driver.cuIpcCloseMemHandle(first), "second close"));
                return expect(driver.cuIpcCloseMemHandle(first) == CUDA_ERROR_INVALID_VALUE,
                              "no third");
              }),
              Each(IsEmpty()));
}

TEST(IpcMemoryTest, AHandleOfFreedMemoryIsStale) {
  EXPECT_THAT(RunLenderAnd([](const StandIn& stand_in, const CUipcMemHandle& handle,
                              Meeting&) { return Open(stand_in, handle).status(); },
                           /*frees=*/true),
              ElementsAre("", HasSubstr("CUDA_ERROR_INVALID_HANDLE")));
}

TEST(IpcMemoryTest, AProcessCannotOpenItsOwnHandle) {
  EXPECT_THAT(RunRanks(1,
                       [](int, Meeting&) -> absl::Status {
                         ASSIGN_OR_RETURN(const auto stand_in, StandIn::Load());
                         ASSIGN_OR_RETURN(const auto gpu, StandInGpu::Create(*stand_in));
                         ASSIGN_OR_RETURN(const auto memory, PlainMemory::Create(*stand_in, 1));
                         CUipcMemHandle handle;
                         memory->ipc_handle().copy(handle.reserved, sizeof(handle));
                         return Open(*stand_in, handle).status();
                       }),
              ElementsAre(HasSubstr("CUDA_ERROR_INVALID_CONTEXT")));
}

}  // namespace
}  // namespace crossmesh
