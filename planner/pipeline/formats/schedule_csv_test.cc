#include "planner/pipeline/formats/schedule_csv.h"

#include "common/plan/testing/for_each_seed.h"
#include "common/testing/is_refused.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/formats/csv_action.h"
#include "planner/pipeline/formats/placed_ops.h"
#include "planner/pipeline/formats/testing/random_edit.h"
#include "planner/pipeline/formats/testing/sample_schedules.h"
#include "planner/pipeline/schedules/dual_pipe.h"
#include "planner/pipeline/schedules/placement.h"
#include "planner/pipeline/testing/pipeline_vectors.h"
#include "planner/pipeline/testing/random_pipeline.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using enum CsvDialect;

constexpr absl::string_view kCompute =
    "0F0,0F1,0B0,0B1\n"
    "1F0,1I0,1W0,1F1,1I1,1W1\n";
constexpr absl::string_view kComms =
    "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\n"
    "1RECV_F0,1UNSHARD,1F0,1RECV_F1,1I0,1SEND_B0,1W0,1F1,1I1,1SEND_B1,1W1,1REDUCE_GRAD,"
    "1RESHARD\n";

absl::StatusOr<std::string> Write(const PipelineShape& shape, const Schedule& schedule,
                                  CsvDialect dialect) {
  const PipelineProfile profile = FreeProfile(shape, static_cast<RankIndex>(schedule.ranks.size()));
  const absl::StatusOr<OpTable> ops = OpTable::Create(schedule, profile);
  if (!ops.ok()) return ops.status();
  return ToScheduleCsv(*ops, dialect);
}

Schedule SmallSchedule() { return *ParseSchedule("0F0 0F1 0B0 0B1\n1F0 1I0 1W0 1F1 1I1 1W1\n"); }

TEST(ScheduleCsvTest, HasARowForEachRank) {
  EXPECT_THAT(ParseScheduleCsv(kCompute, kComputeOnly), IsOkAndHolds(SmallSchedule()));
  EXPECT_THAT(Write({{0, 1}, ChainOf(2)}, SmallSchedule(), kComputeOnly), IsOkAndHolds(kCompute));
}

TEST(ScheduleCsvTest, HasTransfersWhereTheirInputsAre) {
  EXPECT_THAT(ParseScheduleCsv(kComms, kComputeComms), IsOkAndHolds(SmallSchedule()));
  EXPECT_THAT(Write({{0, 1}, ChainOf(2)}, SmallSchedule(), kComputeComms), IsOkAndHolds(kComms));
}

TEST(ScheduleCsvTest, ReadsWhatPyTorchWrites) {
  // Times in which a rank waits, ops that overlap, spaces, and lines that end as in Python.
  EXPECT_THAT(ParseScheduleCsv("0F0,,(0F1;0B0)OVERLAP_F_B,,0B1,\r\n", kComputeOnly),
              IsOkAndHolds(*ParseSchedule("0F0 0F1& 0B0 0B1\n")));
  EXPECT_THAT(ParseScheduleCsv(" 0F0 ,0B0", kComputeOnly),
              IsOkAndHolds(*ParseSchedule("0F0 0B0\n")));
}

// Written by tests/peers/pytorch_schedules.py, each in both dialects.
TEST(ScheduleCsvTest, ReadsTheSchedulesThatPyTorchMakes) {
  const std::filesystem::path folder = SourcePath("planner/pipeline/formats/testdata/pytorch");
  const absl::string_view ending = ".compute_only.csv";
  int schedules = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::string path = entry.path();
    if (!absl::EndsWith(path, ending)) continue;
    SCOPED_TRACE(path);
    ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                         ParseScheduleCsv(ReadTextFile(path), kComputeOnly));
    path.replace(path.size() - ending.size(), ending.size(), ".compute_comms.csv");
    EXPECT_THAT(ParseScheduleCsv(ReadTextFile(path), kComputeComms), IsOkAndHolds(schedule));
    const std::vector<PipelineShape::Edge> chain = ChainOf(schedule.stages);
    EXPECT_OK(Write({StageRanks(schedule), chain}, schedule, kComputeComms));
    ++schedules;
  }
  EXPECT_EQ(schedules, 15);
}

// With a time for every pair it is PyTorch's own, to the letter.
TEST(ScheduleCsvTest, DualPipeVIsThatOfPyTorch) {
  for (const auto& [ranks, m] : {std::pair(2, 4), std::pair(4, 8), std::pair(4, 12)}) {
    const PipelineProfile profile =
        WithPairs(PlacedBy(VRank, ranks, UniformProfile(2 * ranks, 1, 0)), 2);
    ASSERT_OK_AND_ASSIGN(const Schedule schedule, MakeDualPipeV(ranks, m, profile.pairs));
    ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
    const std::string written = ReadTextFile(
        SourcePath(absl::StrCat("planner/pipeline/formats/testdata/pytorch/dual_pipe_v-", ranks,
                                "-", 2 * ranks, "-", m, ".compute_only.csv")));
    EXPECT_THAT(ToScheduleCsv(ops, kComputeOnly),
                IsOkAndHolds(absl::StrReplaceAll(written, {{"\r\n", "\n"}})));
  }
}

TEST(ScheduleCsvTest, FusedOpsHaveOneCell) {
  const absl::string_view text =
      "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\n"
      "1RECV_F0,1UNSHARD,1F0,1RECV_F1,(1F1;1B0)OVERLAP_F_B,1SEND_B0,1B1,1SEND_B1,1REDUCE_GRAD,"
      "1RESHARD\n";
  const Schedule schedule = *ParseSchedule("0F0 0F1 0B0 0B1\n1F0 1F1& 1B0 1B1\n");
  EXPECT_THAT(Write({{0, 1}, ChainOf(2)}, schedule, kComputeComms), IsOkAndHolds(text));
  EXPECT_THAT(ParseScheduleCsv(text, kComputeComms), IsOkAndHolds(schedule));
}

TEST(ScheduleCsvTest, StagesOfOneRankNeedNoTransfer) {
  const Schedule schedule = *ParseSchedule("0F0 1F0 1B0 0B0\n");
  const absl::string_view text =
      "0UNSHARD,0F0,1UNSHARD,1F0,1B0,1REDUCE_GRAD,1RESHARD,0B0,0REDUCE_GRAD,0RESHARD\n";
  EXPECT_THAT(Write({{0, 0}, ChainOf(2)}, schedule, kComputeComms), IsOkAndHolds(text));
  EXPECT_THAT(ParseScheduleCsv(text, kComputeComms), IsOkAndHolds(schedule));
}

TEST(ScheduleCsvTest, EveryScheduleOfAChainIsReadBack) {
  ForEachSeed(30, [&](RandomSource& random) {
    for (const SampleSchedule& sample : SampleSchedules(random)) {
      SCOPED_TRACE(sample);
      for (const CsvDialect dialect : {kComputeOnly, kComputeComms}) {
        const auto text = Write(sample.shape, sample.schedule, dialect);
        if (!sample.is_chain()) {
          EXPECT_THAT(text, IsRefused("edges from each stage to the next"));
          continue;
        }
        ASSERT_OK(text);
        EXPECT_THAT(ParseScheduleCsv(*text, dialect), IsOkAndHolds(sample.schedule));
      }
    }
  });
}

TEST(ScheduleCsvTest, FusedOpsAreReadBack) {
  ForEachSeed(20, [&](RandomSource& random) {
    for (SampleSchedule& sample : SampleSchedules(random)) {
      if (!sample.is_chain()) continue;
      SCOPED_TRACE(sample);
      const auto ranks = static_cast<RankIndex>(sample.schedule.ranks.size());
      FuseRandomOps(random, FreeProfile(sample.shape, ranks), sample.schedule);
      for (const CsvDialect dialect : {kComputeOnly, kComputeComms}) {
        ASSERT_OK_AND_ASSIGN(const std::string text, Write(sample.shape, sample.schedule, dialect));
        EXPECT_THAT(ParseScheduleCsv(text, dialect), IsOkAndHolds(sample.schedule));
      }
    }
  });
}

TEST(ScheduleCsvTest, ACircleIsNotWritten) {
  const Schedule circle = *ParseSchedule("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1\n");
  for (const CsvDialect dialect : {kComputeOnly, kComputeComms}) {
    EXPECT_THAT(Write({{0, 1}, ChainOf(2)}, circle, dialect), IsRefused("0B0 waits for 1B0"));
  }
}

struct Refusal {
  absl::string_view text;
  absl::string_view message;
};

void ExpectRefused(const std::vector<Refusal>& refusals, CsvDialect dialect) {
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.text);
    EXPECT_THAT(ParseScheduleCsv(refusal.text, dialect), IsRefused(std::string(refusal.message)));
  }
}

TEST(ScheduleCsvTest, RefusesWhatIsNoSchedule) {
  ExpectRefused(
      {{"", "row 1, column 1: expected ops, found a row without"},
       {"0F0,0B0\n\n", "row 2, column 1: expected ops, found a row without"},
       {",,\n", "row 1, column 1: expected ops"},
       {"0F0,0B0 x",
        "row 1, column 2: expected an action such as 3F7, 3SEND_F7 or 3UNSHARD, "
        "found \"0B0 x\""},
       {"0F0,0B0B", "found \"0B0B\""},
       {"0F0,0BW0", "found \"0BW0\""},
       {"0f0,0B0", "row 1, column 1: expected an action"},
       {"-0F0,0B0", "found \"-0F0\""},
       {"F0,0B0", "found \"F0\""},
       {"0F,0B0", "found \"0F\""},
       {"0F0,0B99999999999", "found \"0B99999999999\""},
       {"\"0F0\",0B0", "row 1, column 1"},
       {"0F0,(0F1;0B0)OVERLAP_F_Bx", "a pair such as (0F7;3B3)OVERLAP_F_B"},
       {"0F0,(0B0;0F1)OVERLAP_F_B", "found \"(0B0;0F1)OVERLAP_F_B\""},
       {"0F0,(0F1;0B0;0F2)OVERLAP_F_B", "row 1, column 2: expected a pair"},
       {"0F0,(0F1)OVERLAP_F_B", "a pair such as"},
       {"0F0,0UNSHARD,0B0",
        "row 1, column 2: expected ops only in this dialect, found \"0UNSHARD\""},
       {"0F0,0F0,0B0",
        "row 1, column 2: expected a forward op once, found 0F0 after 0F0 at row "
        "1, column 1"},
       {"0F0,0B0,0B0",
        "row 1, column 3: expected a gradient of the input once, found 0B0 after "
        "0B0 at row 1, column 2"},
       {"0F0,0I0,0B0", "found 0B0 after 0I0"},
       {"0F0,0B0,,0W0", "row 1, column 4: expected a gradient of the weights once, found 0W0"},
       {"0B0,0F0",
        "row 1, column 1: expected a forward op of the stage and microbatch before it, "
        "found 0B0"},
       {"0F0,0W0,0I0", "row 1, column 2: expected a gradient of the input"},
       {"0F0,0I0", "rank 0: expected a gradient of the weights of stage 0, microbatch 0"},
       {"0F1,0B1", "rank 0: expected a forward op of stage 0, microbatch 0, found none"},
       {"0F0,0B0\n1F0,1B0,1F1,1B1",
        "rank 0: expected a forward op of stage 0, microbatch 1, found none"},
       {"0F0,0B0\n2F0,2B0", "schedule: expected a forward op of stage 1, microbatch 0, found none"},
       {"0F0,0B0,0F2147483647,0B2147483647", "microbatch 1, found none"},
       {"0F0,0B0,2147483647F0,2147483647B0", "stage 1, microbatch 0, found none"},
       {"0F0,0B0\n0F1,0B1", "row 2, column 1: expected ops of stage 0 on rank 0 alone, found 0F1"},
       {"0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1",
        "rank 0: 0B0 waits for 1B0, behind 1F1 on rank 1; rank 1: 1F1 waits for 0F1, behind 0B0 "
        "on rank 0"}},
      kComputeOnly);
}

TEST(ScheduleCsvTest, RefusesTransfersThatDoNotFit) {
  struct Change {
    absl::string_view from, to, message;
  };
  const std::vector<Change> changes = {
      {"0SEND_F0,0F1", "0F1", "rank 0: expected 0SEND_F0 after 0F0, found none"},
      {"1SEND_B1,1W1", "1W1", "rank 1: expected 1SEND_B1 after 1I1, found none"},
      {"0RECV_B0,", "", "row 1, column 6: expected 0RECV_B0 before its op, found 0B0"},
      {"0F0,0SEND_F0", "0SEND_F0,0F0",
       "row 1, column 2: expected the op before the send of its output, found 0SEND_F0"},
      {"1I1,1SEND_B1", "1SEND_B1,1I1", "row 2, column 9: expected the op before the send"},
      {"0SEND_F1", "0SEND_F1,0SEND_F1", "row 1, column 6: expected it once, found 0SEND_F1"},
      {"0RECV_B1", "0RECV_B1,0RECV_B1", "row 1, column 9: expected it once, found 0RECV_B1"},
      {"0B1,", "0B1,0RECV_B0,",
       "row 1, column 10: expected the receive before its op, found 0RECV_B0"},
      {"0B0,", "0B0,0SEND_B0,", "row 1, column 8: expected transfers with other ranks only"},
      {"1W1,", "1W1,1SEND_F1,", "row 2, column 12: expected transfers with other ranks only"},
      {"0SEND_F1", "0SEND_F1,1SEND_B1", "expected a stage of this rank and a microbatch of it"},
      {"0SEND_F1", "0SEND_F1,0SEND_F2", "row 1, column 6: expected a stage of this rank"},
      {"0UNSHARD", "2UNSHARD", "row 1, column 1: expected a stage of this rank"},
      {"0REDUCE_GRAD", "0REDUCE_GRAD,0REDUCE_GRAD",
       "row 1, column 11: expected it once, found 0REDUCE_GRAD"},
      {"0UNSHARD,", ",", "row 1, column 1: expected an action such as"},
      {"0UNSHARD", "0UNSHARD0", "found \"0UNSHARD0\""},
      {"0SEND_F0", "0SEND_F", "found \"0SEND_F\""},
      {"0SEND_F0", "0SEND_I0", "found \"0SEND_I0\""},
  };
  for (const Change& change : changes) {
    const std::string text = absl::StrReplaceAll(kComms, {{change.from, change.to}});
    ASSERT_NE(text, kComms);
    ExpectRefused({{text, change.message}}, kComputeComms);
  }
  ExpectRefused({{kCompute, "row 1, column 3: expected 0RECV_B0 before its op, found 0B0"}},
                kComputeComms);
}

TEST(ScheduleCsvTest, ActionsAreReadBack) {
  for (const absl::string_view text :
       {"3F7", "0B12", "10I0", "1W1", "0SEND_F1", "12RECV_F10", "1SEND_B1", "0RECV_B1", "0UNSHARD",
        "3RESHARD", "1REDUCE_GRAD"}) {
    ASSERT_OK_AND_ASSIGN(const std::vector<CsvAction> actions, ParseCsvCell(text));
    ASSERT_EQ(actions.size(), 1u);
    EXPECT_EQ(ToString(actions[0]), text);
  }
}

// Whatever is done to a file, it is refused, or read as a schedule that can be written.
TEST(ScheduleCsvTest, AnyEditIsRefusedOrGivesASchedule) {
  int32_t accepted = 0, refused = 0;
  ForEachSeed(20000, [&](RandomSource& random, uint64_t seed) {
    const CsvDialect dialect = random.OneIn(2) ? kComputeOnly : kComputeComms;
    const std::string text =
        RandomEdit(random, dialect == kComputeOnly ? kCompute : kComms, "01FBIW,;()\n \r");
    SCOPED_TRACE(absl::StrCat("seed ", seed, "\n", text));
    const absl::StatusOr<Schedule> schedule = ParseScheduleCsv(text, dialect);
    if (!schedule.ok()) {
      ++refused;
      EXPECT_THAT(schedule, IsRefused("expected"));
      return;
    }
    ++accepted;
    EXPECT_OK(Write({StageRanks(*schedule), ChainOf(schedule->stages)}, *schedule, dialect));
  });
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace crossmesh
