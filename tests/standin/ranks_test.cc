// What ranks must agree on, each in a process.

#include "common/testing/status_matchers.h"
#include "tests/standin/rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

}  // namespace
}  // namespace crossmesh
