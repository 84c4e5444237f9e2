// Tables of several processes, which make and destroy communicators together.

#include "worker/gpu/communicators/communicator_table.h"
#include "worker/gpu/communicators/testing/mint_id_of_all.h"
#include "worker/gpu/communicators/testing/stand_in_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

std::vector<RankName> Names() { return {{"GPU-a", 1}, {"GPU-b", 1}, {"GPU-c", 1}}; }

absl::Status AwaitState(CommunicatorTable& table, CommunicatorState state) {
  while (true) {
    for (const CommunicatorTable::Change& change : table.Poll()) {
      if (change.state == state) return absl::OkStatus();
      if (IsOver(change.state)) return change.cause;
    }
    std::this_thread::yield();
  }
}

// Makes a communicator of all and destroys it, three times.
absl::Status MakeAndDestroy(const NcclApi& nccl, CommunicatorTable& table, int number,
                            Meeting& meeting) {
  const CommunicatorKey key = {.ranks = Names(), .purpose = "relay", .epoch = 1};
  RETURN_IF_ERROR(table.BeginEpoch(1));
  for (uint64_t ticket = 1; ticket < 7; ticket += 2) {
    ASSIGN_OR_RETURN(const std::string id, MintIdOfAll(nccl, number, meeting));
    RETURN_IF_ERROR(table.Create(key, ticket, id));
    RETURN_IF_ERROR(AwaitState(table, CommunicatorState::kReady));
    RETURN_IF_ERROR(table.Destroy(key, ticket + 1));
    RETURN_IF_ERROR(AwaitState(table, CommunicatorState::kDestroyed));
    meeting.Wait();  // before another id takes the place of this one
  }
  return absl::OkStatus();
}

TEST(CommunicatorTableRanksTest, TheyMakeAndDestroyInTheOrderOfTickets) {
  const auto results = RunRanks(3, [](int number, Meeting& meeting) -> absl::Status {
    ASSIGN_OR_RETURN(const auto rank, StandInRank::Create(number));
    CommunicatorTable table(
        rank->clock(), rank->driver(), rank->nccl(),
        {.self = Names()[number], .staging = &rank->staging(), .timeouts = rank->timeouts()});
    RETURN_IF_ERROR(MakeAndDestroy(rank->nccl(), table, number, meeting));
    return rank->Close();
  });
  EXPECT_THAT(results, Each(IsEmpty()));
}

}  // namespace
}  // namespace crossmesh
