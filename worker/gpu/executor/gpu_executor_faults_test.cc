// What becomes of a task, of its communicator and of its memory when a rank, or what is under it,
// cannot go on; and that the ranks which are left run the next task.

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "tests/standin/rank_processes.h"
#include "worker/gpu/communicators/nccl_communicator.h"
#include "worker/gpu/executor/testing/chain_task.h"
#include "worker/gpu/executor/testing/executor_rank.h"

#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Matcher;

constexpr int kChunks = 32;
// Sends and receives of the rank in the middle before the group of its step 2, which has one of
// each: one way of the agreement with each peer, of the first step, of the second.
constexpr int kMiddleOfStep2 = 2 + 1 + 2 + 1;

// Longer than a rank may have to wait for a processor.
constexpr absl::Duration kStallLimit = absl::Seconds(1);

Matcher<std::string> StalledFor(const std::string& limit) {
  return HasSubstr("UNAVAILABLE: stalled, nothing was done for " + limit + "; missing: ");
}

// In the first step, of which more is allowed, or in a later one.
Matcher<std::string> Stalled() { return AnyOf(StalledFor("6s"), StalledFor("1s")); }

// What a rank does with its task, other than run it.
using Disturb = absl::FunctionRef<absl::Status(ExecutorRank& rank, int number, GpuTaskSpec& spec)>;

// Starts the task, of which bytes have been moved when this returns.
absl::Status StartAndMove(ExecutorRank& rank, const GpuTaskSpec& spec, TaskObserver& observer) {
  RETURN_IF_ERROR(rank.executor().Start(spec, observer));
  rank.RunUntil([&] { return rank.executor().MovedBytes(spec.key).value_or(0) > 0; });
  return absl::OkStatus();
}

absl::Status DieInTheMiddle(ExecutorRank& rank, const GpuTaskSpec& spec) {
  AwaitedReport never;
  RETURN_IF_ERROR(StartAndMove(rank, spec, never));
  kill(getpid(), SIGKILL);
  return absl::OkStatus();
}

// Three of four ranks run a chain, in which something goes wrong. Each gives what it was told;
// another error if it was not as in all cases: the communicator has come to its end, and the ranks
// that are left can run a chain on a new one, which gives back all memory.
class GpuExecutorFaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    int ends[2] = {};
    ASSERT_EQ(pipe(ends), 0);
    from_.Reset(ends[0]);
    to_.Reset(ends[1]);
  }

  // The last of four takes the place of `lost`, one of the first three, in the second chain; -1
  // when no rank is lost.
  std::vector<std::string> RunChains(int lost, Disturb disturb) {
    return RunRanks(4, [&](int number, Meeting& meeting) -> absl::Status {
      ASSIGN_OR_RETURN(const auto rank,
                       ExecutorRank::Create(number, {.staging_bytes = int64_t{2} << 20}));
      RETURN_IF_ERROR(rank->JoinAll(4, number, meeting));
      absl::Status told;
      if (number < 3) told = RunFirst(*rank, number, disturb);
      if (number == lost) return told;
      const int place = number == 3 ? lost : number;
      if (place < 0) {
        RETURN_IF_ERROR(StopAtOnce(*rank));
        return rank->Close();
      }
      if (number == 3) RETURN_IF_ERROR(StopAtOnce(*rank));
      RETURN_IF_ERROR(RunSecond(*rank, place));
      return told;
    });
  }

 private:
  static absl::Status RunFirst(ExecutorRank& rank, int number, Disturb disturb) {
    const ChainTask chain(kChunks);
    ASSIGN_OR_RETURN(GpuTaskSpec spec, rank.Spec(chain.compiled_parts[number], chain.memory));
    spec.stall_limit = kStallLimit;
    const absl::Status disturbed = disturb(rank, number, spec);
    if (!disturbed.ok()) return disturbed;
    return rank.Run(std::move(spec)).status();
  }

  static absl::Status StopAtOnce(ExecutorRank& rank) {
    rank.StopCommunicator(rank.communicator(), absl::CancelledError("the others have failed"));
    return rank.AwaitStopped();
  }

  absl::Status RunSecond(ExecutorRank& rank, int place) {
    RETURN_IF_ERROR(rank.AwaitStopped());
    RETURN_IF_ERROR(rank.stand_in().SetFaults(""));
    ASSIGN_OR_RETURN(const std::string id, ShareId(rank, place));
    RETURN_IF_ERROR(rank.Join(3, place, id));
    {
      const ChainTask chain(kChunks);
      ASSIGN_OR_RETURN(GpuTaskSpec spec, rank.Spec(chain.compiled_parts[place], chain.memory, 1));
      RETURN_IF_ERROR(rank.Run(std::move(spec)).status());
      RETURN_IF_ERROR(chain.memory.CheckDestination(place));
    }
    return rank.Close();
  }

  // Through a pipe, since the dead keep no appointments.
  absl::StatusOr<std::string> ShareId(const ExecutorRank& rank, int place) const {
    std::string id(sizeof(ncclUniqueId), '\0');
    const auto bytes = static_cast<ssize_t>(id.size());
    if (place != 0) {
      if (read(from_.get(), id.data(), bytes) == bytes) return id;
      return absl::InternalError("no id was told");
    }
    ASSIGN_OR_RETURN(id, MintId(rank.stand_in().nccl()));
    for (int other = 1; other < 3; ++other) {
      if (write(to_.get(), id.data(), bytes) != bytes) return absl::InternalError("id not told");
    }
    return id;
  }

  UniqueFd from_;
  UniqueFd to_;
};

TEST_F(GpuExecutorFaultsTest, ACommunicatorThatFailsFailsTheTaskWithItsWords) {
  const auto told = RunChains(-1, [](ExecutorRank& rank, int number, GpuTaskSpec&) {
    return rank.stand_in().SetFaults(number == 1 ? absl::StrCat("async_error_at=", kMiddleOfStep2)
                                                 : "");
  });
  EXPECT_THAT(told,
              ElementsAre(Stalled(), AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("async_error_at")),
                          Stalled(), IsEmpty()));
}

TEST_F(GpuExecutorFaultsTest, AStallIsNoticedByAllWithinTheLimit) {
  const auto told = RunChains(-1, [](ExecutorRank& rank, int number, GpuTaskSpec&) {
    return rank.stand_in().SetFaults(number == 1 ? absl::StrCat("stall_at=", kMiddleOfStep2) : "");
  });
  EXPECT_THAT(told, ElementsAre(AllOf(Stalled(), HasSubstr("to b.0")),
                                AllOf(Stalled(), HasSubstr("missing: step 2, after 2 of 33"),
                                      HasSubstr("to b.1, from a.0")),
                                AllOf(Stalled(), HasSubstr("from b.0")), IsEmpty()));
}

TEST_F(GpuExecutorFaultsTest, SurvivorsOfAProcessThatDiesGoOn) {
  const auto told = RunChains(2, [](ExecutorRank& rank, int number, GpuTaskSpec& spec) {
    return number == 2 ? DieInTheMiddle(rank, spec) : absl::OkStatus();
  });
  EXPECT_THAT(told, ElementsAre(Stalled(), Stalled(), "killed by signal 9", IsEmpty()));
}

TEST_F(GpuExecutorFaultsTest, AGpuThatIsLostEndsAllTasksOfItsProcess) {
  const auto told = RunChains(2, [](ExecutorRank& rank, int number, GpuTaskSpec& spec) {
    if (number != 2) return absl::OkStatus();
    RETURN_IF_ERROR(rank.stand_in().SetFaults("illegal_address_at=3"));
    const absl::Status lost = rank.Run(spec).status();
    AwaitedReport never;
    spec.key.instance = 1;
    if (rank.executor().health() != lost || rank.executor().Start(spec, never) != lost) {
      return absl::InternalError("expected that nothing can be run any more");
    }
    const bool is_told = absl::StrContains(lost.message(), "CUDA_ERROR_ILLEGAL_ADDRESS");
    kill(getpid(), is_told ? SIGKILL : SIGABRT);
    return lost;
  });
  EXPECT_THAT(told, ElementsAre(Stalled(), Stalled(), "killed by signal 9", IsEmpty()));
}

TEST_F(GpuExecutorFaultsTest, ATaskThatIsCancelledInTheMiddleGivesBackItsBuffers) {
  const auto told = RunChains(-1, [](ExecutorRank& rank, int number, GpuTaskSpec& spec) {
    if (number != 1) return absl::OkStatus();
    AwaitedReport awaited;
    RETURN_IF_ERROR(StartAndMove(rank, spec, awaited));
    rank.executor().Cancel(spec.key, absl::CancelledError("enough"));
    rank.RunUntil([&] { return awaited.is_there(); });
    return awaited.status();
  });
  EXPECT_THAT(told, ElementsAre(Stalled(), "CANCELLED: enough", Stalled(), IsEmpty()));
}

TEST_F(GpuExecutorFaultsTest, ATaskThatIsLateEndsWithWhatIsMissing) {
  const auto told = RunChains(-1, [](ExecutorRank& rank, int number, GpuTaskSpec& spec) {
    if (number == 1) spec.stall_limit = absl::Milliseconds(200);
    if (number != 0) return absl::OkStatus();
    spec.deadline = absl::Milliseconds(50);
    return rank.stand_in().SetFaults("in_progress_polls=1000000000");
  });
  EXPECT_THAT(told, ElementsAre(HasSubstr("DEADLINE_EXCEEDED: deadline of 50ms; missing: the "
                                          "agreement of all peers"),
                                StalledFor("1.2s"), Stalled(), IsEmpty()));
}

TEST_F(GpuExecutorFaultsTest, ATaskWhoseCommunicatorIsStoppedByItsOwnerFails) {
  const auto told = RunChains(-1, [](ExecutorRank& rank, int number, GpuTaskSpec& spec) {
    if (number != 1) return absl::OkStatus();
    AwaitedReport awaited;
    RETURN_IF_ERROR(StartAndMove(rank, spec, awaited));
    rank.StopCommunicator(rank.communicator(), absl::UnavailableError("b.1 is gone"));
    rank.PollCommunicator();
    rank.RunUntil([&] { return awaited.is_there(); });
    return awaited.status();
  });
  EXPECT_THAT(told, ElementsAre(Stalled(),
                                AllOf(HasSubstr("UNAVAILABLE: the communicator is "),
                                      HasSubstr("b.1 is gone")),
                                Stalled(), IsEmpty()));
}

// And takes nothing of what the rank before it sends.
TEST_F(GpuExecutorFaultsTest, ARankWithAnotherCompiledPartSaysSo) {
  const ChainTask other(kChunks, {.staging_bytes = 1 << 20, .checksums = false});
  const auto told = RunChains(-1, [&](ExecutorRank& rank, int number, GpuTaskSpec& spec) {
    if (number != 2) return absl::OkStatus();
    ASSIGN_OR_RETURN(const GpuTaskSpec without_checksums,
                     rank.Spec(other.compiled_parts[2], other.memory));
    spec.binding = without_checksums.binding;
    return absl::OkStatus();
  });
  const auto differs = HasSubstr("does not run the same: expected compiled part ");
  EXPECT_THAT(told,
              ElementsAre(Stalled(), Stalled(),
                          AllOf(HasSubstr("FAILED_PRECONDITION: device b.0"), differs), IsEmpty()));
}

// A peer may compile and bind its part for longer than what a step may take.
TEST(GpuExecutorAgreementTest, APeerThatBeginsLateIsWaitedFor) {
  const auto told = RunRanks(3, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(3, number, meeting));
    const ChainTask chain(kChunks);
    ASSIGN_OR_RETURN(GpuTaskSpec spec, rank->Spec(chain.compiled_parts[number], chain.memory));
    spec.stall_limit = absl::Milliseconds(500);
    const RealClock clock;
    const absl::Duration late = clock.Monotonic() + 2 * spec.stall_limit;
    if (number == 2) rank->RunUntil([&] { return clock.Monotonic() > late; });
    RETURN_IF_ERROR(rank->Run(std::move(spec)).status());
    RETURN_IF_ERROR(chain.memory.CheckDestination(number));
    return rank->Close();
  });
  EXPECT_THAT(told, Each(IsEmpty()));
}

// Bytes that change on the way harm no communicator, so this needs no second one.
TEST(GpuExecutorChecksumsTest, CorruptBytesAreDataLossOfTheRelayWhereverTheyCome) {
  const auto told = RunRanks(3, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, ExecutorRank::Create(number, {}));
    RETURN_IF_ERROR(rank->JoinAll(3, number, meeting));
    const ChainTask chain(kChunks);
    ASSIGN_OR_RETURN(GpuTaskSpec spec, rank->Spec(chain.compiled_parts[number], chain.memory));
    if (number == 1) {
      RETURN_IF_ERROR(rank->stand_in().SetFaults(absl::StrCat("corrupt_at=", kMiddleOfStep2 + 1)));
    }
    const absl::Status first = rank->Run(spec).status();
    if (rank->executor().counters().checksum_failures != (first.ok() ? 0 : 1)) return first;
    // The same binding again, as if nothing had been.
    spec.key.instance = 1;
    RETURN_IF_ERROR(rank->Run(std::move(spec)).status());
    RETURN_IF_ERROR(chain.memory.CheckDestination(number));
    RETURN_IF_ERROR(rank->Close());
    return first;
  });
  const auto lost = AllOf(HasSubstr("DATA_LOSS: relay 0 at "),
                          HasSubstr("bytes [131072, 196608) of class 0: expected hash "));
  EXPECT_THAT(told, ElementsAre(IsEmpty(), lost, lost));
}

// Nothing but the end of the process ends an abort that hangs, so that is what this one does.
TEST(GpuExecutorHungTest, WorkThatDoesNotEndIsGivenUpWithTheGpu) {
  const auto told = RunRanks(3, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(
        const auto rank,
        ExecutorRank::Create(number, {.timeouts = {.ending = absl::Milliseconds(50)}}));
    RETURN_IF_ERROR(rank->JoinAll(3, number, meeting));
    if (number != 0) return absl::OkStatus();
    RETURN_IF_ERROR(rank->stand_in().SetFaults("in_progress_polls=1000000000,abort_hangs=1"));
    const ChainTask chain(kChunks);
    ASSIGN_OR_RETURN(GpuTaskSpec spec, rank->Spec(chain.compiled_parts[0], chain.memory));
    spec.stall_limit = absl::Milliseconds(200);
    const absl::Status stalled = rank->Run(std::move(spec)).status();
    const absl::Status& health = rank->executor().health();
    const bool is_told = absl::StrContains(health.message(), "does not end") &&
                         absl::StrContains(health.message(), stalled.message());
    kill(getpid(), is_told ? SIGKILL : SIGABRT);
    return health;
  });
  EXPECT_THAT(told, ElementsAre("killed by signal 9", IsEmpty(), IsEmpty()));
}

// What each of `ranks` is told of a task, of which the first three are a group.
std::vector<std::string> RunGroup(int ranks, Disturb disturb) {
  return RunRanks(ranks, [&](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank,
                     ExecutorRank::Create(number, {.staging_bytes = int64_t{2} << 20}));
    RETURN_IF_ERROR(rank->JoinAll(ranks, number, meeting));
    const ChainTask group = ChainTask::OfBroadcasts(kChunks);
    ASSIGN_OR_RETURN(GpuTaskSpec spec, rank->Spec(group.compiled_parts[number % 3], group.memory));
    spec.stall_limit = kStallLimit;
    RETURN_IF_ERROR(disturb(*rank, number, spec));
    const absl::Status status = rank->Run(std::move(spec)).status();
    if (!status.ok()) RETURN_IF_ERROR(rank->AwaitStopped());
    return status;
  });
}

TEST(GpuExecutorBroadcastTest, AGroupHasItsCommunicatorForItself) {
  const auto told =
      RunGroup(4, [](ExecutorRank& rank, int number, GpuTaskSpec& spec) -> absl::Status {
        AwaitedReport never;
        const absl::Status refused = rank.executor().Start(spec, never);
        return number < 3 ? refused : absl::InvalidArgumentError("expected 3 ranks, found 4");
      });
  EXPECT_THAT(told,
              Each(AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("expected 3 ranks, found 4"))));
}

TEST(GpuExecutorBroadcastTest, ARankInAnotherReplayIsToldOfByAllOthers) {
  const auto told = RunGroup(3, [](ExecutorRank&, int number, GpuTaskSpec& spec) {
    if (number == 1) spec.key.instance = 7;
    return absl::OkStatus();
  });
  EXPECT_THAT(told, ElementsAre(AllOf(HasSubstr("device b.0 does not run the same"),
                                      HasSubstr("found compiled part"), HasSubstr("instance 7")),
                                HasSubstr("device a.0 does not run the same"),
                                HasSubstr("device b.0 does not run the same")));
}

TEST(GpuExecutorBroadcastTest, ARankThatDiesStallsItsGroup) {
  const auto told = RunGroup(3, [](ExecutorRank& rank, int number, GpuTaskSpec& spec) {
    return number == 2 ? DieInTheMiddle(rank, spec) : absl::OkStatus();
  });
  const auto stalled = AllOf(HasSubstr("UNAVAILABLE: stalled, nothing was done for 1s"),
                             HasSubstr("broadcast from a.0"));
  EXPECT_THAT(told, ElementsAre(stalled, stalled, "killed by signal 9"));
}

}  // namespace
}  // namespace crossmesh
