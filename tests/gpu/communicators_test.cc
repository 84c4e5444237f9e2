// Communicators of NCCL itself: the suite that it passes over the stand-ins, and the ends that
// matter most, since only NCCL can say how they go.

#include "common/base/status_macros.h"
#include "tests/gpu/real_gpu.h"
#include "tests/gpu/real_rank.h"
#include "worker/gpu/communicators/testing/communicator_conformance.h"

#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

CommunicatorUnderTest Ranks(const std::string& name, int size, RankPlaces places,
                            const GpuNeeds& needs) {
  const auto run = [places](int ranks, absl::FunctionRef<absl::Status(RankUnderTest&)> body) {
    return RunRealRanks(places, ranks, [&](RealRank& rank, int, Meeting&) -> absl::Status {
      RETURN_IF_ERROR(body(rank));
      return rank.Destroy();
    });
  };
  return {name, size, run, [needs] { return WhatLacks(needs); }};
}

CommunicatorUnderTest OneGpuEach(const std::string& name, int size) {
  return Ranks(name, size, RankPlaces::kOneGpuEach, {.gpus = size, .nccl = true});
}

INSTANTIATE_TEST_SUITE_P(RealNccl, CommunicatorConformanceTest,
                         testing::Values(OneGpuEach("OneRank", 1), OneGpuEach("TwoGpus", 2),
                                         OneGpuEach("FourGpus", 4), OneGpuEach("EightGpus", 8),
                                         Ranks("TwoRanksOnOneGpu", 2, RankPlaces::kAllOnFirst,
                                               {.ranks_share_gpu = true})),
                         CommunicatorUnderTest::Name);

// Between stagings, of which the mirror knows nothing.
absl::Status BeginExchange(RealRank& rank, int peer) {
  const RankMessage send = {peer, rank.staging().address(), 100'000};
  const RankMessage receive = {peer, rank.staging().address() + 500'000, 100'000};
  return rank.life().communicator()->Exchange({&send, 1}, {&receive, 1}, rank.stream());
}

// Rank 0 has an exchange on its stream that rank 1 never makes, when both are stopped. Afterwards
// they exchange over a new communicator.
absl::Status StopAndGoOn(RealRank& rank, int number, Meeting& meeting) {
  const int peer = 1 - number;
  // So that they are connected, without which nothing gets on the stream.
  RETURN_IF_ERROR(BeginExchange(rank, peer));
  RETURN_IF_ERROR(rank.Await());
  if (number == 0) {
    RETURN_IF_ERROR(BeginExchange(rank, peer));
    RETURN_IF_ERROR(rank.AwaitState(CommunicatorState::kReady));
  }
  meeting.Wait();
  rank.life().Stop(absl::CancelledError("enough"));
  while (!IsOver(rank.life().Poll())) std::this_thread::yield();
  if (rank.life().state() == CommunicatorState::kHung) return rank.life().cause();
  RETURN_IF_ERROR(rank.Synchronize());
  RETURN_IF_ERROR(rank.JoinAll(2, number, meeting));
  RETURN_IF_ERROR(BeginExchange(rank, peer));
  RETURN_IF_ERROR(rank.Await());
  return rank.Destroy();
}

struct TwoRanks {
  const char* name;
  RankPlaces places = RankPlaces::kOneGpuEach;

  friend void PrintTo(const TwoRanks& ranks, std::ostream* out) { *out << ranks.name; }
};

class StoppedCommunicatorTest : public testing::TestWithParam<TwoRanks> {
 protected:
  void SetUp() override {
    const bool is_shared = GetParam().places == RankPlaces::kAllOnFirst;
    const std::string lack =
        WhatLacks({.gpus = is_shared ? 1 : 2, .nccl = true, .ranks_share_gpu = is_shared});
    if (!lack.empty()) GTEST_SKIP() << lack;
  }
};

TEST_P(StoppedCommunicatorTest, EndsInTheMiddleOfAnExchangeAndLeavesTheGpuUsable) {
  EXPECT_THAT(RunRealRanks(GetParam().places, 2, StopAndGoOn), Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(RealNccl, StoppedCommunicatorTest,
                         testing::Values(TwoRanks{"TwoGpus", RankPlaces::kOneGpuEach},
                                         TwoRanks{"TwoRanksOnOneGpu", RankPlaces::kAllOnFirst}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace crossmesh
