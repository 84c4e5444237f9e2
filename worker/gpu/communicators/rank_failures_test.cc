// What becomes of the other ranks of a communicator when one of them cannot go on.

#include "common/base/unique_fd.h"
#include "common/testing/status_matchers.h"
#include "tests/standin/rank_processes.h"
#include "worker/gpu/communicators/testing/mint_id_of_all.h"
#include "worker/gpu/communicators/testing/stand_in_rank.h"

#include <csignal>

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

// What each of two ranks is told of a communicator that cannot be made, after `prepare` has set up
// the process. It is aborted, and nothing of it is left.
std::vector<std::string> RunInits(absl::FunctionRef<void(int number)> prepare) {
  return RunRanks(2, [&](int number, Meeting& meeting) -> absl::Status {
    prepare(number);
    ASSIGN_OR_RETURN(const auto rank, StandInRank::Create(number));
    ASSIGN_OR_RETURN(const int64_t free_bytes, rank->gpu().FreeBytes());
    ASSIGN_OR_RETURN(const std::string id, MintIdOfAll(rank->nccl(), number, meeting));
    RETURN_IF_ERROR(rank->Begin(2, number, id));
    RETURN_IF_ERROR(rank->AwaitState(CommunicatorState::kAborted));
    ASSIGN_OR_RETURN(const int64_t free_bytes_after, rank->gpu().FreeBytes());
    if (free_bytes_after != free_bytes) return absl::InternalError("memory is gone");
    return rank->life().cause();
  });
}

TEST(RankFailuresTest, RanksOfTwoVersionsAreToldOfBoth) {
  const auto results = RunInits([](int number) {
    if (number == 1) setenv("CROSSMESH_STANDIN_NCCL_VERSION", "2.29.7", 1);
  });
  EXPECT_THAT(results, Each(AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("23007"),
                                  HasSubstr("22907"))));
}

TEST(RankFailuresTest, RanksOfTwoEnvironmentsAreToldOfBoth) {
  const auto results =
      RunInits([](int number) { setenv("NCCL_CUMEM_ENABLE", absl::StrCat(number).c_str(), 1); });
  EXPECT_THAT(results,
              Each(AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("NCCL_CUMEM_ENABLE=0"),
                         HasSubstr("NCCL_CUMEM_ENABLE=1"))));
}

TEST(RankFailuresTest, TwoRanksOnOneGpuAreTold) {
  const auto results = RunInits([](int) { setenv("CROSSMESH_STANDIN_FIRST_DEVICE", "5", 1); });
  EXPECT_THAT(results, Each(AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("duplicate GPU"))));
}

TEST(RankFailuresTest, AnInitThatFailsAtOneRankEndsAtTheDeadlineOfTheOther) {
  const auto results = RunRanks(2, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, StandInRank::Create(number));
    ASSIGN_OR_RETURN(const std::string id, MintIdOfAll(rank->nccl(), number, meeting));
    if (number == 1) RETURN_IF_ERROR(rank->stand_in().SetFaults("init_fails=1"));
    RETURN_IF_ERROR(rank->Begin(2, number, id));
    if (number == 0) {
      if (rank->life().Poll() != CommunicatorState::kCreating) return rank->life().cause();
      rank->clock().Advance(rank->timeouts().creating + absl::Seconds(1));
    }
    RETURN_IF_ERROR(rank->AwaitState(CommunicatorState::kAborted));
    return rank->life().cause();
  });
  EXPECT_THAT(results, ElementsAre(AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("CREATING")),
                                   AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("init_fails"))));
}

// Nothing but the end of the process ends an abort that hangs, so that is what this one does.
TEST(RankFailuresTest, AnAbortThatHangsIsToldAtItsDeadline) {
  const auto results = RunRanks(1, [](int number, Meeting&) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, StandInRank::Create(number));
    RETURN_IF_ERROR(rank->stand_in().SetFaults("abort_hangs=1,init_never_ends=1"));
    RETURN_IF_ERROR(rank->BeginAlone());
    rank->life().Stop(absl::CancelledError("enough"));
    rank->clock().Advance(rank->timeouts().ending);
    if (rank->life().Poll() != CommunicatorState::kAborting) return rank->life().cause();
    rank->clock().Advance(absl::Seconds(1));
    if (rank->life().Poll() != CommunicatorState::kHung) return rank->life().cause();
    if (rank->life().Poll() != CommunicatorState::kHung) return rank->life().cause();
    kill(getpid(), SIGKILL);
    return absl::OkStatus();
  });
  EXPECT_THAT(results, ElementsAre("killed by signal 9"));
}

// Rank 2 dies before its part of an exchange. NCCL tells the others nothing; they are told to stop,
// and make a communicator of their own, whose id goes through a pipe, since the dead keep no
// appointments.
TEST(RankFailuresTest, SurvivorsOfAPeerThatDiesMakeANewCommunicator) {
  int ends[2] = {};
  ASSERT_EQ(pipe(ends), 0);
  const UniqueFd from(ends[0]);
  const UniqueFd to(ends[1]);
  const auto share_id = [&](const StandInRank& rank, int number) -> absl::StatusOr<std::string> {
    std::string id(sizeof(ncclUniqueId), '\0');
    const auto bytes = static_cast<ssize_t>(id.size());
    if (number == 0) {
      ASSIGN_OR_RETURN(id, MintId(rank.nccl()));
      if (write(to.get(), id.data(), bytes) == bytes) return id;
    } else if (read(from.get(), id.data(), bytes) == bytes) {
      return id;
    }
    return absl::InternalError("the id was not shared");
  };
  const auto results = RunRanks(3, [&](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, StandInRank::Create(number));
    ASSIGN_OR_RETURN(const int64_t free_bytes, rank->gpu().FreeBytes());
    ASSIGN_OR_RETURN(const std::string id, MintIdOfAll(rank->nccl(), number, meeting));
    RETURN_IF_ERROR(rank->Join(3, number, id));
    if (number == 2) kill(getpid(), SIGKILL);
    RETURN_IF_ERROR(rank->BeginExchange(2));
    for (int poll = 0; poll < 1000; ++poll) {
      if (rank->life().Poll() != CommunicatorState::kReady) return rank->life().cause();
    }
    if (rank->driver().cuStreamQuery(rank->stream()) != CUDA_ERROR_NOT_READY) {
      return absl::InternalError("the dead answered");
    }
    rank->life().Stop(absl::UnavailableError("rank 2 is lost"));
    RETURN_IF_ERROR(rank->AwaitState(CommunicatorState::kDestroyed));
    RETURN_IF_ERROR(rank->Synchronize());
    ASSIGN_OR_RETURN(const int64_t free_bytes_after, rank->gpu().FreeBytes());
    if (free_bytes_after != free_bytes) return absl::InternalError("memory is gone");

    ASSIGN_OR_RETURN(const std::string next_id, share_id(*rank, number));
    RETURN_IF_ERROR(rank->Join(2, number, next_id));
    RETURN_IF_ERROR(rank->BeginExchange(1 - number));
    RETURN_IF_ERROR(rank->Await());
    RETURN_IF_ERROR(rank->Destroy());
    return rank->Close();
  });
  EXPECT_THAT(results, ElementsAre(IsEmpty(), IsEmpty(), "killed by signal 9"));
}

}  // namespace
}  // namespace crossmesh
