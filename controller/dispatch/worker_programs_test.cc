#include "controller/dispatch/worker_programs.h"

#include "common/testing/status_matchers.h"
#include "common/wire/worker_part_codec.h"
#include "controller/dispatch/testing/sample_pipeline.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Words = std::vector<std::string>;

// Devices 0 of these hosts, a worker for each group: "ab" owns a.0 and b.0.
std::vector<std::vector<DeviceId>> Workers(const std::vector<std::string>& groups) {
  std::vector<std::vector<DeviceId>> workers;
  for (const std::string& hosts : groups) {
    std::vector<DeviceId>& devices = workers.emplace_back();
    for (const char host : hosts) devices.push_back({std::string(1, host), 0});
  }
  return workers;
}

std::vector<PlannedProgram> ProgramsOf(const v1::PipelineSpec& spec,
                                       const std::vector<std::string>& groups,
                                       const std::string& model = "") {
  const auto planned = PlanSample(spec, model);
  CHECK_OK(planned);
  auto programs = MakeWorkerPrograms(**planned, Workers(groups));
  CHECK_OK(programs);
  return *std::move(programs);
}

TEST(WorkerProgramsTest, EveryHopOfEveryChannelHasBothItsEndsOnce) {
  const auto planned = PlanSample(SamplePipeline({4, 4, 8, 4}, 3));
  ASSERT_OK(planned);
  const std::vector<std::string> groups = {"a", "b", "cd", "ef"};
  ASSERT_OK_AND_ASSIGN(const auto programs, MakeWorkerPrograms(**planned, Workers(groups)));
  using HopName = std::tuple<uint32_t, DeviceRank, DeviceRank, int32_t, int32_t>;
  std::map<HopName, int> sent, received;
  std::map<uint32_t, std::set<int32_t>> transfers_of_plan;
  for (const PlannedProgram& program : programs) {
    ASSERT_EQ(std::ssize(program.transfers), program.message.transfers_size());
    for (int i = 0; i < program.message.transfers_size(); ++i) {
      const v1::PipelineProgram::Transfer& message = program.message.transfers(i);
      ASSERT_OK_AND_ASSIGN(const WorkerPart part, FromProto(message.part()));
      transfers_of_plan[message.plan()].insert(program.transfers[i]);
      const PlannedTransfer& transfer = (*planned)->transfers[program.transfers[i]];
      EXPECT_EQ(message.samples(), transfer.samples);
      EXPECT_EQ(message.buffers(), transfer.buffers);
      EXPECT_EQ(2 * message.edge() + (message.backward() ? 1 : 0), transfer.index);
      EXPECT_EQ(part.spec().plan, transfer.plan->id());
      const std::vector<DeviceRank>& own = part.spec().devices;
      for (const auto& hop : part.spec().hops) {
        const HopName name = {message.plan(), hop.from, hop.to, hop.channel, hop.place};
        if (std::ranges::count(own, hop.from) > 0) ++sent[name];
        if (std::ranges::count(own, hop.to) > 0) ++received[name];
      }
    }
  }
  size_t hops = 0;
  for (const PlannedTransfer& transfer : (*planned)->transfers)
    hops += transfer.plan->hops().size();
  EXPECT_THAT(sent, SizeIs(hops));
  EXPECT_EQ(sent, received);
  for (const auto& [name, times] : sent) EXPECT_EQ(times, 1);
  // One for each edge, direction and size.
  EXPECT_THAT(transfers_of_plan, SizeIs(2 * 2 * 2));
  for (const auto& [attempt, transfers] : transfers_of_plan) EXPECT_THAT(transfers, SizeIs(1));
  EXPECT_EQ(transfers_of_plan.begin()->first, 1);
  EXPECT_EQ(transfers_of_plan.rbegin()->first, 8);
}

TEST(WorkerProgramsTest, ARanksWorkersDoItsOpsTogether) {
  const auto programs = ProgramsOf(SamplePipeline({4, 4}), {"a", "b", "cd"});
  for (const int worker : {0, 1}) {
    const v1::PipelineProgram& message = programs[worker].message;
    ASSERT_THAT(message.ranks(), SizeIs(1));
    EXPECT_EQ(message.ranks(0).rank(), 0);
    EXPECT_EQ(message.ranks(0).actions(), "0F0 0F1 0B0 0B1");
    ASSERT_THAT(message.stages(), SizeIs(1));
    EXPECT_EQ(message.stages(0).forward_seconds(), 0.01);
  }
  EXPECT_EQ(programs[2].message.ranks(0).actions(), "1F0 1B0 1F1 1B1");
  EXPECT_EQ(programs[2].message.stages(0).forward_seconds(), 0.02);
  EXPECT_THAT(programs[2].message.transfers(0).tensors(), ElementsAre("hidden.0"));
}

TEST(WorkerProgramsTest, AWorkerMayHaveDevicesOfSeveralRanks) {
  const auto programs = ProgramsOf(SamplePipeline({4, 4}), {"ac", "bd"});
  EXPECT_THAT(programs[0].message.ranks(), SizeIs(2));
  EXPECT_THAT(programs[0].message.stages(), SizeIs(2));
  EXPECT_THAT(programs[0].message.transfers(), SizeIs(2));
}

TEST(WorkerProgramsTest, TimesOfPairsAreToldToTheWorkersOfTheirRank) {
  v1::PipelineSpec spec = SamplePipeline({4, 4});
  v1::PipelinePair& pair = *spec.add_pairs();
  pair.set_forward_stage(1);
  pair.set_backward_stage(1);
  pair.set_seconds(0.03);
  const auto programs = ProgramsOf(spec, {"ab", "c", "d"});
  EXPECT_THAT(programs[0].message.pairs(), IsEmpty());
  for (const int worker : {1, 2}) {
    ASSERT_THAT(programs[worker].message.pairs(), SizeIs(1));
    EXPECT_EQ(programs[worker].message.pairs(0).SerializeAsString(), pair.SerializeAsString());
  }
}

TEST(WorkerProgramsTest, MicrobatchesAreToldInRunsOfOneSize) {
  const auto programs = ProgramsOf(SamplePipeline({4, 4, 8, 4}), {"ab", "cd"});
  Words runs;
  for (const auto& run : programs[0].message.microbatches()) {
    runs.push_back(absl::StrCat(run.count(), "x", run.samples()));
  }
  EXPECT_THAT(runs, ElementsAre("2x4", "1x8", "1x4"));
}

// Ranks that block take turns: each does its actions in order, transfers with the other end.
bool RunsToTheEnd(std::vector<Words> ranks, int& transfers) {
  for (Words& words : ranks) std::ranges::reverse(words);
  const auto is_transfer = [](const Words& words) {
    return !words.empty() && absl::StrContains(words.back(), ">");
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t i = 0; i < ranks.size(); ++i) {
      while (!ranks[i].empty() && !is_transfer(ranks[i])) ranks[i].pop_back(), moved = true;
      for (size_t j = i + 1; j < ranks.size(); ++j) {
        if (!is_transfer(ranks[i]) || !is_transfer(ranks[j])) continue;
        if (ranks[i].back() != ranks[j].back()) continue;
        ranks[i].pop_back();
        ranks[j].pop_back();
        ++transfers;
        moved = true;
      }
    }
  }
  return std::ranges::all_of(ranks, &Words::empty);
}

TEST(WorkerProgramsTest, RanksThatBlockHaveTheirTransfersInAnOrderThatEnds) {
  const auto planned = PlanSample(SamplePipeline({4, 4, 4, 4, 4}, 3), "blocking");
  ASSERT_OK(planned);
  ASSERT_OK_AND_ASSIGN(const auto programs,
                       MakeWorkerPrograms(**planned, Workers({"ab", "cd", "ef"})));
  std::vector<Words> ranks;
  for (const PlannedProgram& program : programs) {
    ranks.push_back(absl::StrSplit(program.message.ranks(0).actions(), ' '));
  }
  EXPECT_THAT(Words(ranks[0].begin(), ranks[0].begin() + 3), ElementsAre("0F0", "0>1F0", "0F1"));
  EXPECT_EQ(ranks[0][ranks[0].size() - 2], "1>0B4");
  int transfers = 0;
  EXPECT_TRUE(RunsToTheEnd(ranks, transfers));
  EXPECT_EQ(transfers, 2 * 2 * 5);
  // As in the predicted run.
  const PlannedPipeline& p = **planned;
  for (RankIndex rank = 0; rank < 3; ++rank) {
    double last = 0;
    for (const std::string& action : ranks[rank]) {
      if (absl::StrContains(action, ">")) continue;
      const auto op = std::ranges::find(p.schedule.ranks[rank], *ParseOp(action));
      const double begin =
          p.run.ops[p.ops->first(rank) + (op - p.schedule.ranks[rank].begin())].begin;
      EXPECT_GE(begin, last) << action;
      last = begin;
    }
  }
}

TEST(WorkerProgramsTest, AnEdgeThatHasOnlyTimesIsRefused) {
  v1::PipelineSpec spec = SamplePipeline({4, 4});
  spec.mutable_edges(0)->clear_tensors();
  spec.mutable_edges(0)->set_forward_seconds(0.1);
  spec.mutable_edges(0)->set_backward_seconds(0.1);
  const auto planned = PlanSample(spec);
  ASSERT_OK(planned);
  EXPECT_THAT(MakeWorkerPrograms(**planned, Workers({"ab", "cd"})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("edge from stage 0 to 1")));
}

TEST(WorkerProgramsTest, ADeviceThatNobodyOwnsIsNamed) {
  const auto planned = PlanSample(SamplePipeline({4, 4}));
  ASSERT_OK(planned);
  EXPECT_THAT(MakeWorkerPrograms(**planned, Workers({"ab", "c"})),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("d.0")));
}

}  // namespace
}  // namespace crossmesh
