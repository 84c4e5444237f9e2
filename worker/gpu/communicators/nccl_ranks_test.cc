// Communicators of NCCL with several ranks, each in a process.

#include "tests/standin/rank_processes.h"
#include "worker/gpu/communicators/testing/communicator_conformance.h"
#include "worker/gpu/communicators/testing/mint_id_of_all.h"
#include "worker/gpu/communicators/testing/stand_in_rank.h"

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

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

}  // namespace
}  // namespace crossmesh
