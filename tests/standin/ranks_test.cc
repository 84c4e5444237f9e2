// Communicators of several ranks, each in a process.

#include "common/testing/status_matchers.h"
#include "tests/standin/rank.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kCount = 100'000;  // several rings full

template <typename T>
std::span<T> As(std::span<std::byte> memory) {
  return {reinterpret_cast<T*>(memory.data()), memory.size() / sizeof(T)};
}

// A number that tells from whom, to whom and where.
int ValueOf(int from, int to, size_t i) {
  return from * 1'000'003 + to * 10'007 + static_cast<int>(i);
}

absl::Status ExpectValues(std::span<const int> found, int from, int to) {
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] != ValueOf(from, to, i)) {
      return absl::DataLossError(
          absl::StrCat("from ", from, " to ", to, " at ", i, ": ", found[i]));
    }
  }
  return absl::OkStatus();
}

void Fill(std::span<int> numbers, int from, int to) {
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = ValueOf(from, to, i);
}

// Every rank sends to every other.
absl::Status ExchangeAll(Rank& rank) {
  const size_t bytes = kCount * sizeof(int);
  ASSIGN_OR_RETURN(const auto from, rank.gpu->Allocate(bytes * rank.ranks));
  ASSIGN_OR_RETURN(const auto to, rank.gpu->Allocate(bytes * rank.ranks));
  RETURN_IF_ERROR(rank.Check(rank.nccl().ncclGroupStart()));
  for (int peer = 0; peer < rank.ranks; ++peer) {
    Fill(As<int>(from.subspan(peer * bytes, bytes)), rank.rank, peer);
    RETURN_IF_ERROR(rank.Check(rank.nccl().ncclSend(from.data() + peer * bytes, kCount, ncclInt32,
                                                    peer, rank.communicator, rank.gpu->stream())));
    RETURN_IF_ERROR(rank.Check(rank.nccl().ncclRecv(to.data() + peer * bytes, kCount, ncclInt32,
                                                    peer, rank.communicator, rank.gpu->stream())));
  }
  RETURN_IF_ERROR(rank.Await(rank.nccl().ncclGroupEnd()));
  for (int peer = 0; peer < rank.ranks; ++peer) {
    RETURN_IF_ERROR(ExpectValues(As<int>(to.subspan(peer * bytes, bytes)), peer, rank.rank));
  }
  return absl::OkStatus();
}

absl::Status BroadcastAndGather(Rank& rank, ncclComm_t communicator, int root) {
  const size_t bytes = kCount * sizeof(int);
  ASSIGN_OR_RETURN(const auto own, rank.gpu->Allocate(bytes));
  ASSIGN_OR_RETURN(const auto all, rank.gpu->Allocate(bytes * rank.ranks));
  Fill(As<int>(own), rank.rank, 0);
  RETURN_IF_ERROR(rank.Await(rank.nccl().ncclBroadcast(own.data(), all.data(), kCount, ncclInt32,
                                                       root, communicator, rank.gpu->stream())));
  RETURN_IF_ERROR(ExpectValues(As<int>(all.subspan(0, bytes)), root, 0));
  RETURN_IF_ERROR(rank.Await(rank.nccl().ncclAllGather(own.data(), all.data(), kCount, ncclInt32,
                                                       communicator, rank.gpu->stream())));
  for (int peer = 0; peer < rank.ranks; ++peer) {
    RETURN_IF_ERROR(ExpectValues(As<int>(all.subspan(peer * bytes, bytes)), peer, 0));
  }
  return absl::OkStatus();
}

// Every rank gives its number; the sum of all is what all-reduce, reduce and reduce-scatter give.
template <typename T>
absl::Status Reductions(Rank& rank, ncclDataType_t type, ncclRedOp_t operation, T expected) {
  ASSIGN_OR_RETURN(const auto from, rank.gpu->Allocate(kCount * sizeof(T) * rank.ranks));
  ASSIGN_OR_RETURN(const auto to, rank.gpu->Allocate(kCount * sizeof(T)));
  const NcclApi& nccl = rank.nccl();
  const auto expect = [&](absl::string_view what) {
    for (const T found : As<T>(to)) {
      if (found != expected) return absl::DataLossError(absl::StrCat(what, " gives ", found));
    }
    std::ranges::fill(As<T>(to), T{0});
    return absl::OkStatus();
  };
  std::ranges::fill(As<T>(from), static_cast<T>(rank.rank + 1));
  const int root = rank.ranks - 1;
  RETURN_IF_ERROR(rank.Await(nccl.ncclAllReduce(from.data(), to.data(), kCount, type, operation,
                                                rank.communicator, rank.gpu->stream())));
  RETURN_IF_ERROR(expect("all-reduce"));
  RETURN_IF_ERROR(rank.Await(nccl.ncclReduceScatter(from.data(), to.data(), kCount, type, operation,
                                                    rank.communicator, rank.gpu->stream())));
  RETURN_IF_ERROR(expect("reduce-scatter"));
  RETURN_IF_ERROR(
      rank.Await(nccl.ncclReduce(from.data(), rank.rank == root ? to.data() : nullptr, kCount, type,
                                 operation, root, rank.communicator, rank.gpu->stream())));
  return rank.rank == root ? expect("reduce") : absl::OkStatus();
}

TEST(RanksTest, EightRanksExchangeAndReduce) {
  EXPECT_THAT(RunRanks(8,
                       [](int number, Meeting& meeting) -> absl::Status {
                         ASSIGN_OR_RETURN(Rank rank, Rank::Create(8, number, meeting));
                         RETURN_IF_ERROR(ExchangeAll(rank));
                         RETURN_IF_ERROR(BroadcastAndGather(rank, rank.communicator, 3));
                         RETURN_IF_ERROR(Reductions<int>(rank, ncclInt32, ncclSum, 36));
                         RETURN_IF_ERROR(Reductions<float>(rank, ncclFloat32, ncclAvg, 4.5F));
                         RETURN_IF_ERROR(Reductions<uint8_t>(rank, ncclUint8, ncclMax, 8));
                         return rank.End();
                       }),
              Each(IsEmpty()));
}

TEST(RanksTest, ASplitMakesCommunicatorsOfItsOwn) {
  EXPECT_THAT(RunRanks(5,
                       [](int number, Meeting& meeting) -> absl::Status {
                         ASSIGN_OR_RETURN(Rank rank, Rank::Create(5, number, meeting));
                         // 0 2 4 in reverse order, 1 alone, 3 in none.
                         const int color = number == 3 ? NCCL_SPLIT_NOCOLOR : number % 2;
                         ASSIGN_OR_RETURN(ncclComm_t half,
                                          rank.gpu->Split(rank.communicator, color, -number));
                         if (number == 3) {
                           if (half != nullptr)
                             return absl::InternalError("a communicator of none");
                           return rank.End();
                         }
                         int place = 0;
                         RETURN_IF_ERROR(rank.Check(rank.nccl().ncclCommUserRank(half, &place)));
                         const int expected = number == 1 ? 0 : 2 - number / 2;
                         if (place != expected) return absl::InternalError(absl::StrCat(place));
                         RETURN_IF_ERROR(rank.gpu->FinalizeAndDestroy(half));
                         return rank.End();
                       }),
              Each(IsEmpty()));
}

// Two ranks whose calls differ; both are told, at the next call at the latest.
std::vector<std::string> RunTwo(absl::FunctionRef<ncclResult_t(const Rank&, void*)> communicate) {
  return RunRanks(2, [&](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(Rank rank, Rank::Create(2, number, meeting));
    ASSIGN_OR_RETURN(const auto memory, rank.gpu->Allocate(4096));
    absl::Status status = rank.Check(communicate(rank, memory.data()));
    while (status.ok()) status = rank.gpu->Poll(rank.communicator).status();
    RETURN_IF_ERROR(rank.Check(rank.nccl().ncclCommAbort(rank.communicator)));
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

TEST(RanksTest, CollectivesOfOtherSizesAreTold) {
  const auto results = RunTwo([](const Rank& rank, void* memory) {
    return rank.nccl().ncclAllReduce(memory, memory, 10 + rank.rank, ncclInt32, ncclSum,
                                     rank.communicator, rank.gpu->stream());
  });
  EXPECT_THAT(results, Each(AllOf(HasSubstr("ncclAllReduce of 10 int32"),
                                  HasSubstr("ncclAllReduce of 11 int32"))));
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

// What each rank's init comes to.
std::vector<std::string> RunInits(absl::FunctionRef<absl::Status(int rank, Rank&, Meeting&)> init) {
  return RunRanks(2, [&](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(Rank rank, Rank::Create(2, number, meeting, false));
    return init(number, rank, meeting);
  });
}

TEST(RanksTest, RanksHaveOneVersion) {
  const auto results = RunRanks(2, [](int number, Meeting& meeting) {
    if (number == 1) setenv("CROSSMESH_STANDIN_NCCL_VERSION", "2.29.7", 1);
    return Rank::Create(2, number, meeting).status();
  });
  EXPECT_THAT(results, Each(AllOf(HasSubstr("23007"), HasSubstr("22907"))));
}

TEST(RanksTest, RanksHaveOneEnvironment) {
  const auto results = RunRanks(2, [](int number, Meeting& meeting) {
    setenv("NCCL_CUMEM_ENABLE", absl::StrCat(number).c_str(), 1);
    return Rank::Create(2, number, meeting).status();
  });
  EXPECT_THAT(results,
              Each(AllOf(HasSubstr("NCCL_CUMEM_ENABLE=0"), HasSubstr("NCCL_CUMEM_ENABLE=1"))));
}

TEST(RanksTest, RanksHaveAGpuEach) {
  const auto same_gpu = [](int number, Meeting& meeting) -> absl::Status {
    setenv("CROSSMESH_STANDIN_FIRST_DEVICE", "5", 1);
    ASSIGN_OR_RETURN(Rank rank, Rank::Create(2, number, meeting));
    return rank.End();
  };
  EXPECT_THAT(RunRanks(2, same_gpu), Each(HasSubstr("duplicate GPU: ranks")));
  EXPECT_THAT(RunRanks(2,
                       [&](int number, Meeting& meeting) {
                         setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
                         return same_gpu(number, meeting);
                       }),
              Each(IsEmpty()));
}

// What a rank is told of joining a communicator of `ranks` as number `as`; rank 1 joins after rank
// 0, since the second is told.
absl::Status JoinInTurn(int number, Rank& rank, Meeting& meeting, int ranks, int as) {
  if (number == 1) meeting.Wait();
  ASSIGN_OR_RETURN(ncclComm_t communicator, rank.gpu->InitCommunicator(ranks, meeting.id, as));
  ncclResult_t state = ncclSuccess;
  RETURN_IF_ERROR(rank.Check(rank.nccl().ncclCommGetAsyncError(communicator, &state)));
  if (number == 0) meeting.Wait();
  const absl::Status told = rank.Check(state);
  meeting.Wait();
  RETURN_IF_ERROR(rank.Check(rank.nccl().ncclCommAbort(communicator)));
  return told;
}

TEST(RanksTest, RanksAgreeOnTheirNumber) {
  const auto results = RunInits([](int number, Rank& rank, Meeting& meeting) {
    return JoinInTurn(number, rank, meeting, 2 + number, number);
  });
  EXPECT_THAT(results, ElementsAre(IsEmpty(), HasSubstr("there are 3 ranks, another one 2")));
}

TEST(RanksTest, ARankJoinsOnce) {
  const auto results = RunInits([](int number, Rank& rank, Meeting& meeting) {
    return JoinInTurn(number, rank, meeting, 2, 0);
  });
  EXPECT_THAT(results, ElementsAre(IsEmpty(), HasSubstr("rank 0 has joined already")));
}

TEST(RanksTest, APeerThatDiesStallsTheOtherUntilItAborts) {
  const auto results = RunRanks(2, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(Rank rank, Rank::Create(2, number, meeting));
    ASSIGN_OR_RETURN(const auto memory, rank.gpu->Allocate(4096));
    if (number == 1) kill(getpid(), SIGKILL);
    ASSIGN_OR_RETURN(const int64_t free, rank.gpu->FreeBytes());
    RETURN_IF_ERROR(rank.Check(rank.nccl().ncclRecv(memory.data(), 100, ncclUint8, 1,
                                                    rank.communicator, rank.gpu->stream())));
    for (int poll = 0; poll < 1000; ++poll) {
      RETURN_IF_ERROR(rank.gpu->Poll(rank.communicator).status());
    }
    if (rank.driver().cuStreamQuery(rank.gpu->stream()) != CUDA_ERROR_NOT_READY) {
      return absl::InternalError("received from the dead");
    }
    RETURN_IF_ERROR(
        rank.Check(rank.nccl().ncclCommAbort(std::exchange(rank.communicator, nullptr))));
    RETURN_IF_ERROR(rank.gpu->Synchronize());
    ASSIGN_OR_RETURN(const int64_t free_after, rank.gpu->FreeBytes());
    if (free_after != free + (16 << 20)) return absl::InternalError("memory is gone");
    return rank.End();
  });
  EXPECT_THAT(results, ElementsAre(IsEmpty(), "killed by signal 9"));
}

TEST(RanksTest, SurvivorsShrink) {
  const auto results = RunRanks(4, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(Rank rank, Rank::Create(4, number, meeting));
    ASSIGN_OR_RETURN(const auto memory, rank.gpu->Allocate(4096));
    if (number == 1) kill(getpid(), SIGKILL);
    RETURN_IF_ERROR(
        rank.Check(rank.nccl().ncclAllReduce(memory.data(), memory.data(), 10, ncclInt32, ncclSum,
                                             rank.communicator, rank.gpu->stream())));
    RETURN_IF_ERROR(rank.gpu->Poll(rank.communicator).status());
    int excluded[] = {1};
    ncclComm_t child = nullptr;
    RETURN_IF_ERROR(rank.Check(rank.nccl().ncclCommShrink(rank.communicator, excluded, 1, &child,
                                                          nullptr, NCCL_SHRINK_ABORT)));
    RETURN_IF_ERROR(rank.gpu->Poll(rank.communicator).status());
    RETURN_IF_ERROR(rank.gpu->Poll(child).status());
    RETURN_IF_ERROR(rank.Check(rank.nccl().ncclCommDestroy(rank.communicator)));
    RETURN_IF_ERROR(rank.gpu->Synchronize());
    rank.communicator = child;
    rank.ranks = 3;
    RETURN_IF_ERROR(rank.Check(rank.nccl().ncclCommUserRank(child, &rank.rank)));
    RETURN_IF_ERROR(Reductions<int>(rank, ncclInt32, ncclSum, 6));
    return rank.End();
  });
  EXPECT_THAT(results, ElementsAre(IsEmpty(), "killed by signal 9", IsEmpty(), IsEmpty()));
}

TEST(RanksTest, AShrinkWithoutAbortNeedsAllToBeDone) {
  const auto results = RunRanks(2, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(Rank rank, Rank::Create(2, number, meeting));
    if (number == 1) kill(getpid(), SIGKILL);
    ASSIGN_OR_RETURN(const auto memory, rank.gpu->Allocate(4096));
    RETURN_IF_ERROR(rank.Check(rank.nccl().ncclRecv(memory.data(), 1, ncclUint8, 1,
                                                    rank.communicator, rank.gpu->stream())));
    RETURN_IF_ERROR(rank.gpu->Poll(rank.communicator).status());
    int excluded[] = {1};
    ncclComm_t child = nullptr;
    const absl::Status told = rank.Check(rank.nccl().ncclCommShrink(
        rank.communicator, excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT));
    RETURN_IF_ERROR(rank.Check(rank.nccl().ncclCommAbort(rank.communicator)));
    return told;
  });
  EXPECT_THAT(results,
              ElementsAre(HasSubstr("while operations are outstanding"), "killed by signal 9"));
}

}  // namespace
}  // namespace crossmesh
