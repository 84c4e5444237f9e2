// What ranks are told that cannot be those of one communicator.

#include "common/testing/status_matchers.h"
#include "tests/standin/rank_processes.h"
#include "worker/gpu/communicators/testing/mint_id_of_all.h"
#include "worker/gpu/communicators/testing/stand_in_rank.h"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace crossmesh
