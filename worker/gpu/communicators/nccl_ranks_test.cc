// Communicators of NCCL with several ranks, each in a process.

#include "tests/standin/rank_processes.h"
#include "worker/gpu/communicators/testing/communicator_conformance.h"
#include "worker/gpu/communicators/testing/mint_id_of_all.h"
#include "worker/gpu/communicators/testing/stand_in_rank.h"

#include <cstdlib>
#include <optional>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

std::vector<std::string> RunProcesses(int size,
                                      absl::FunctionRef<absl::Status(RankUnderTest&)> body) {
  return RunRanks(size, [&](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, StandInRank::Create(number));
    ASSIGN_OR_RETURN(const std::string id, MintIdOfAll(rank->nccl(), number, meeting));
    RETURN_IF_ERROR(rank->Join(size, number, id));
    RETURN_IF_ERROR(body(*rank));
    RETURN_IF_ERROR(rank->Destroy());
    return rank->Close();
  });
}

INSTANTIATE_TEST_SUITE_P(NcclInProcesses, CommunicatorConformanceTest,
                         testing::Values(CommunicatorUnderTest{"OneRank", 1, RunProcesses},
                                         CommunicatorUnderTest{"TwoRanks", 2, RunProcesses},
                                         CommunicatorUnderTest{"FiveRanks", 5, RunProcesses}),
                         CommunicatorUnderTest::Name);

// What NCCL 2.29.7 tells, and the ones before do not.
TEST(CommunicatorMemoryTest, ItGrowsWithTheFirstMessageFromAPeer) {
  const auto results = RunProcesses(2, [](RankUnderTest& under_test) -> absl::Status {
    auto& rank = static_cast<StandInRank&>(under_test);
    const std::optional<int64_t> before = rank.life().MemoryBytes();
    const int peer = 1 - rank.life().communicator()->rank();
    RETURN_IF_ERROR(rank.BeginExchange(peer));
    const bool is_told_meanwhile = rank.life().MemoryBytes().has_value();
    RETURN_IF_ERROR(rank.Await());
    const std::optional<int64_t> after = rank.life().MemoryBytes();
    if (before == 16 << 20 && !is_told_meanwhile && after == 20 << 20) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(before.value_or(-1), ", then ", after.value_or(-1)));
  });
  EXPECT_THAT(results, Each(IsEmpty()));
}

TEST(CommunicatorMemoryTest, AnOlderNcclDoesNotTell) {
  const auto results = RunRanks(1, [](int, Meeting&) -> absl::Status {
    setenv("CROSSMESH_STANDIN_NCCL_VERSION", "2.29.6", 1);
    ASSIGN_OR_RETURN(const auto rank, StandInRank::Create());
    RETURN_IF_ERROR(rank->JoinAlone());
    if (rank->life().MemoryBytes().has_value()) return absl::InternalError("it is told");
    RETURN_IF_ERROR(rank->Destroy());
    return rank->Close();
  });
  EXPECT_THAT(results, Each(IsEmpty()));
}

}  // namespace
}  // namespace crossmesh
