#include "planner/pipeline/formats/schedule_file.h"

#include "common/plan/testing/for_each_seed.h"
#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/formats/testing/random_edit.h"
#include "planner/pipeline/formats/testing/sample_schedules.h"
#include "planner/pipeline/testing/random_pipeline.h"

#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kSmall = R"({
  "version": 1,
  "microbatches": 2,
  "stage_ranks": [
    0,
    1
  ],
  "edges": [
    {
      "from": 0,
      "to": 1
    }
  ],
  "ranks": [
    "0F0 0F1 0B0 0B1",
    "1F0 1I0 1W0 1F1 1B1"
  ]
}
)";

absl::StatusOr<std::string> Write(const PipelineShape& shape, const Schedule& schedule) {
  const PipelineProfile profile = FreeProfile(shape, static_cast<RankIndex>(schedule.ranks.size()));
  const absl::StatusOr<OpTable> ops = OpTable::Create(schedule, profile);
  if (!ops.ok()) return ops.status();
  return ToScheduleFile(*ops);
}

TEST(ScheduleFileTest, HasShapeAndOrder) {
  const PipelineShape shape = {{0, 1}, ChainOf(2)};
  const Schedule schedule = *ParseSchedule("0F0 0F1 0B0 0B1\n1F0 1I0 1W0 1F1 1B1\n");
  EXPECT_THAT(Write(shape, schedule), IsOkAndHolds(kSmall));
  EXPECT_THAT(ParseScheduleFile(kSmall), IsOkAndHolds(ScheduleFile{shape, schedule}));
}

TEST(ScheduleFileTest, EveryScheduleIsReadBack) {
  ForEachSeed(30, [&](RandomSource& random) {
    for (const SampleSchedule& sample : SampleSchedules(random)) {
      SCOPED_TRACE(sample);
      ASSERT_OK_AND_ASSIGN(const std::string text, Write(sample.shape, sample.schedule));
      EXPECT_THAT(ParseScheduleFile(text),
                  IsOkAndHolds(ScheduleFile{sample.shape, sample.schedule}));
    }
  });
}

TEST(ScheduleFileTest, FusedOpsAreReadBack) {
  int fused = 0;
  ForEachSeed(20, [&](RandomSource& random) {
    for (SampleSchedule& sample : SampleSchedules(random)) {
      SCOPED_TRACE(sample);
      const Schedule in_turn = sample.schedule;
      const auto ranks = static_cast<RankIndex>(in_turn.ranks.size());
      FuseRandomOps(random, FreeProfile(sample.shape, ranks), sample.schedule);
      fused += sample.schedule != in_turn;
      ASSERT_OK_AND_ASSIGN(const std::string text, Write(sample.shape, sample.schedule));
      EXPECT_THAT(ParseScheduleFile(text),
                  IsOkAndHolds(ScheduleFile{sample.shape, sample.schedule}));
    }
  });
  EXPECT_GT(fused, 150);
}

TEST(ScheduleFileTest, RefusesWhatIsNoSchedule) {
  struct Change {
    absl::string_view from, to, message;
  };
  const std::vector<Change> changes = {
      {kSmall, "", "schedule file: expected strict JSON, found: malformed"},
      {"]\n}\n", "]\n}\n}", "expected strict JSON"},
      {kSmall, "[]", "schedule file: expected an object, found array"},
      {"\"version\": 1,", "", "expected \"version\" to be an integer below 2^63, found nothing"},
      {"\"version\": 1,", "\"version\": 2,", "expected \"version\" to be 1, found 2"},
      {"\"version\": 1,", "\"version\": 1, \"version\": 1,", "key \"version\" is given twice"},
      {"\"version\": 1,", "\"version\": 1, \"name\": 1,", "unknown key \"name\""},
      {"s\": 2,", "s\": 3,", "expected \"microbatches\" to be 2, found 3"},
      {"s\": 2,", "s\": 2.0,", "expected \"microbatches\" to be an integer"},
      {"    1\n", "    0\n", "expected \"stage_ranks\" to be those of the ops, 0 1, found 0 0"},
      {"    1\n", "    1, 2\n", "found 0 1 2"},
      {"\"to\": 1", "\"to\": 2", "edges[0]: expected \"to\" to be one of 2 stages, found 2"},
      {"\"from\": 0", "\"from\": -1",
       "edges[0]: expected \"from\" to be one of 2 stages, found -1"},
      {"\"from\": 0", "\"from\": 1", "edge from stage 1 to 1: expected one of the 2 stages and a "},
      {"\"from\": 0", "\"at\": 0", "schedule file edges[0]: unknown key \"at\""},
      {"      \"from\": 0,\n", "", "schedule file edges[0]: expected \"from\" to be an integer"},
      {"}\n  ]", "}, {\"from\": 0, \"to\": 1}]",
       "edge from stage 0 to 1: expected it once, found it again"},
      {"{\n      \"from\": 0,\n      \"to\": 1\n    }", "7", "edges[0]: expected an object"},
      {"\"0F0 0F1", "\"0F0  0F1", "schedule file ranks[0], op 1: op \"\""},
      {"1I0", "1X0", "schedule file ranks[1], op 1: op \"1X0\": expected a stage, one of F, B, I"},
      {"1B1\"", "1B1 \"", "ranks[1], op 5: op \"\""},
      {"\"0F0 0F1 0B0 0B1\"", "5", "expected \"ranks\"[0] to be a string"},
      {"0F1", "0F0",
       "schedule file ranks[0], op 1: expected a forward op once, found 0F0 after "
       "0F0 at schedule file ranks[0], op 0"},
      {"0B1\"", "0B1 1F1\"",
       "schedule file ranks[1], op 0: expected ops of stage 1 on rank 0 alone"},
      {"0F0 0F1", "0F0& 0F1",
       "rank 0, op 0F0&: expected a forward op, fused with the backward op right after it, found "
       "0F1 "
       "after it"},
      {"0B1\"", "0B1&\"", "rank 0, op 0B1&: expected a forward op"},
      {" 0B1", "", "rank 0: expected a gradient of the input of stage 0, microbatch 1, found none"},
  };
  for (const Change& change : changes) {
    const std::string text = absl::StrReplaceAll(kSmall, {{change.from, change.to}});
    SCOPED_TRACE(text);
    EXPECT_NE(text, kSmall);
    EXPECT_THAT(ParseScheduleFile(text), IsRefused(std::string(change.message)));
  }
}

TEST(ScheduleFileTest, RefusesACircle) {
  const Schedule circle = *ParseSchedule("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1\n");
  EXPECT_THAT(Write({{0, 1}, ChainOf(2)}, circle), IsRefused("0B0 waits for 1B0"));
  const std::string text = absl::StrReplaceAll(
      kSmall, {{"0F0 0F1 0B0 0B1", "0F0 0B0 0F1 0B1"}, {"1F0 1I0 1W0 1F1 1B1", "1F0 1F1 1B0 1B1"}});
  EXPECT_THAT(ParseScheduleFile(text), IsRefused("0B0 waits for 1B0"));
}

// Whatever is done to a file, it is refused, or read as a schedule that can be written.
TEST(ScheduleFileTest, AnyEditIsRefusedOrGivesASchedule) {
  int32_t accepted = 0, refused = 0;
  ForEachSeed(20000, [&](RandomSource& random, uint64_t seed) {
    const std::string text = RandomEdit(random, kSmall, "0129FBIW&{}[]\",: -.");
    SCOPED_TRACE(absl::StrCat("seed ", seed, "\n", text));
    const absl::StatusOr<ScheduleFile> file = ParseScheduleFile(text);
    if (!file.ok()) {
      ++refused;
      EXPECT_THAT(file, IsRefused("expected"));
      return;
    }
    ++accepted;
    EXPECT_OK(Write(file->shape, file->schedule));
  });
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace crossmesh
