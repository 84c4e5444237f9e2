#include "planner/pipeline/search/schedule_search.h"

#include "common/plan/testing/for_each_seed.h"
#include "common/testing/is_refused.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/pipeline_proof.h"
#include "planner/pipeline/schedules/placement.h"
#include "planner/pipeline/schedules/schedule_names.h"
#include "planner/pipeline/search/testing/exact_schedule.h"
#include "planner/pipeline/search/testing/shared_pipeline.h"
#include "planner/pipeline/testing/pipeline_vectors.h"
#include "planner/pipeline/testing/random_pipeline.h"
#include "planner/pipeline/timeline.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

// A few stages on ranks of their own, equal or not, with memory for some microbatches on each.
PipelineProfile SmallChain(RandomSource& random) {
  const auto stages = static_cast<int32_t>(random.Between(1, 3));
  const bool is_uniform = random.OneIn(2);
  PipelineProfile profile =
      UniformProfile(stages, 1, static_cast<double>(random.Between(0, 4)) / 4);
  for (StageProfile& stage : profile.stages) {
    const auto time = [&] {
      return is_uniform ? 1 : static_cast<double>(random.Between(3, 6)) / 4;
    };
    stage.forward_seconds = time();
    stage.input_gradient_seconds = time();
    stage.weight_gradient_seconds = time();
  }
  const int64_t windows = random.Between(stages, 3 * stages);
  for (std::optional<ByteCount>& most : profile.rank_bytes_max) most = ByteCount(windows);
  return profile;
}

// Found is within 3 % of the least time there is, and 0.2 % on average.
TEST(ScheduleSearchTest, SmallPipelinesTakeNearlyTheLeastTime) {
  for (const BackwardForm form : {BackwardForm::kFull, BackwardForm::kSplit}) {
    double sum = 0;
    constexpr int kCases = 60;
    for (uint64_t seed = 0; seed < kCases; ++seed) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", form ", static_cast<int>(form)));
      RandomSource random(seed);
      const PipelineProfile profile = SmallChain(random);
      const auto microbatches = static_cast<int32_t>(random.Between(2, 5));
      ASSERT_OK_AND_ASSIGN(const ExactSchedule exact,
                           FindExactSchedule(profile, microbatches, form, 3'000'000));
      ASSERT_OK_AND_ASSIGN(const SearchResult found,
                           SearchSchedules(profile, microbatches, {.form = form}));
      EXPECT_GE(found.best().seconds, exact.seconds * (1 - 1e-9));
      EXPECT_LE(found.best().seconds, exact.seconds * 1.03);
      EXPECT_LE(found.bound.seconds(), exact.seconds * (1 + 1e-9));
      sum += found.best().seconds / exact.seconds;
    }
    EXPECT_LE(sum / kCases, 1.002);
  }
}

// Where ranks have several stages it is the least time itself.
TEST(ScheduleSearchTest, SharedRanksTakeTheLeastTime) {
  double sum = 0, worst = 0;
  int solved = 0;
  const int64_t cases = RandomCases(400);
  ForEachSeed(cases, [&](RandomSource& random) {
    const auto [profile, microbatches] = RandomSharedPipeline(random);
    const BackwardForm form = random.OneIn(2) ? BackwardForm::kSplit : BackwardForm::kFull;
    const auto exact = FindExactSchedule(profile, microbatches, form, 30'000);
    if (!exact.ok()) return;  // too many orders
    ASSERT_OK_AND_ASSIGN(const SearchResult found,
                         SearchSchedules(profile, microbatches, {.form = form}));
    const double ratio = found.best().seconds / exact->seconds;
    EXPECT_LE(ratio, 1.001);
    worst = std::max(worst, ratio);
    // With limits of memory the exact search may miss the least time of such ranks.
    sum += std::max(ratio, 1.0);
    ++solved;
  });
  RecordProperty("solved", solved);
  RecordProperty("worst", absl::StrCat(worst));
  RecordProperty("mean", absl::StrCat(sum / solved));
  EXPECT_GE(solved, cases * 3 / 8);
  EXPECT_LE(sum / solved, 1.0001);
}

// Whatever the pipeline: the set is one of Pareto, all that is in it can be proven, and says of
// itself what a run says.
TEST(ScheduleSearchTest, WhatIsFoundCanRunAsItSays) {
  ForEachSeed(40, [&](RandomSource& random, uint64_t seed) {
    const PipelineProfile profile = RandomProfile(random, {.stages_max = 4});
    const BackwardForm form = random.OneIn(2) ? BackwardForm::kSplit : BackwardForm::kFull;
    for (const TransferModel model : {TransferModel::kLatency, TransferModel::kPair}) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", TransferModelName(model)));
      const SearchOptions options{.form = form, .model = model, .ops_max = 100'000};
      ASSERT_OK_AND_ASSIGN(const SearchResult found, SearchSchedules(profile, 6, options));
      EXPECT_LE(found.ops, options.ops_max);
      for (size_t i = 0; i < found.pareto.size(); ++i) {
        const FoundSchedule& f = found.pareto[i];
        SCOPED_TRACE(f.name);
        ASSERT_OK_AND_ASSIGN(const PipelineProof proof, ProvePipeline(f.schedule, profile));
        EXPECT_EQ(std::ranges::max_element(proof.memory, {}, &RankMemory::bytes)->bytes(),
                  f.peak_bytes);
        ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(f.schedule, profile));
        EXPECT_DOUBLE_EQ(SimulatePipeline(ops, model)->seconds, f.seconds);
        EXPECT_GE(f.gap, -1e-9);
        if (i == 0) continue;
        EXPECT_GT(f.seconds, found.pareto[i - 1].seconds);
        EXPECT_LT(f.peak_bytes, found.pareto[i - 1].peak_bytes);
      }
      for (const FoundSchedule& f : found.others) EXPECT_TRUE(f.schedule.ranks.empty());
    }
  });
}

TEST(ScheduleSearchTest, EqualRequestsGiveEqualResults) {
  const PipelineProfile profile = UniformProfile(4, 1, 0.3);
  ASSERT_OK_AND_ASSIGN(const SearchResult first,
                       SearchSchedules(profile, 12, {.form = BackwardForm::kSplit}));
  ASSERT_OK_AND_ASSIGN(const SearchResult again,
                       SearchSchedules(profile, 12, {.form = BackwardForm::kSplit}));
  ASSERT_EQ(first.pareto.size(), again.pareto.size());
  for (size_t i = 0; i < first.pareto.size(); ++i) {
    EXPECT_EQ(first.pareto[i].schedule, again.pareto[i].schedule);
  }
}

// With enough memory the bounds are met: eager's time, and that of ZB-H2.
TEST(ScheduleSearchTest, UniformPipelinesReachTheBound) {
  for (const BackwardForm form : {BackwardForm::kFull, BackwardForm::kSplit}) {
    ASSERT_OK_AND_ASSIGN(const SearchResult found,
                         SearchSchedules(UniformProfile(8, 1, 0.5), 32, {.form = form}));
    EXPECT_NEAR(found.best().gap, 0, 1e-9);
    EXPECT_EQ(found.bound.kind(), PipelineBoundKind::kWork);
  }
}

// A last stage that cannot delay its gradients of the weights: the way back ends the iteration.
TEST(ScheduleSearchTest, TheBoundOfTheRampsIsReached) {
  PipelineProfile profile = UniformProfile(3, 1, 0.5);
  profile.rank_bytes_max[2] = ByteCount(1);
  ASSERT_OK_AND_ASSIGN(const SearchResult found,
                       SearchSchedules(profile, 16, {.form = BackwardForm::kSplit}));
  EXPECT_EQ(found.bound.kind(), PipelineBoundKind::kRamps);
  EXPECT_NEAR(found.best().gap, 0, 1e-9);
}

TEST(ScheduleSearchTest, ASpanMayBeShorterThanTheTime) {
  ASSERT_OK_AND_ASSIGN(
      const SearchResult found,
      SearchSchedules(UniformProfile(4, 1, 0), 12,
                      {.form = BackwardForm::kSplit, .objective = SearchObjective::kSpan}));
  EXPECT_DOUBLE_EQ(found.best().span_seconds, 36);
}

std::set<std::string> NamesOf(const SearchResult& found) {
  std::set<std::string> names;
  for (const FoundSchedule& f : found.pareto) names.insert(f.name);
  for (const FoundSchedule& f : found.others) names.insert(f.name);
  return names;
}

TEST(ScheduleSearchTest, PlacementsGetTheSchedulesThatWantThem) {
  PipelineProfile profile = PlacedBy(VRank, 4, UniformProfile(8, 0.5, 0));
  ASSERT_OK_AND_ASSIGN(const SearchResult v,
                       SearchSchedules(profile, 8, {.form = BackwardForm::kSplit}));
  EXPECT_THAT(NamesOf(v), testing::IsSupersetOf({"zb_v", "v_half", "v_min", "dual_pipe_v"}));
  for (StageIndex s = 0; s < 8; ++s) profile.stages[s].rank = LoopedRank(s, 4);
  ASSERT_OK_AND_ASSIGN(const SearchResult looped, SearchSchedules(profile, 8));
  EXPECT_THAT(NamesOf(looped), testing::IsSupersetOf({"interleaved_1f1b", "looped_bfs"}));
}

// Of schedules only DualPipeV has pairs; the bound counts on those of every schedule.
TEST(ScheduleSearchTest, PairsMakeDualPipeFaster) {
  const PipelineProfile v = PlacedBy(VRank, 4, UniformProfile(8, 1, 0));
  ASSERT_OK_AND_ASSIGN(const SearchResult in_turn,
                       SearchSchedules(v, 16, {.form = BackwardForm::kSplit}));
  const PipelineProfile pairs = WithPairs(v, 2);
  ASSERT_OK_AND_ASSIGN(const SearchResult found,
                       SearchSchedules(pairs, 16, {.form = BackwardForm::kSplit}));
  EXPECT_LT(found.best().seconds, 0.9 * in_turn.best().seconds);
  EXPECT_THAT(found.best().name, HasSubstr("dual_pipe_v"));
  EXPECT_THAT(ToString(found.best().schedule), HasSubstr("&"));
  // The last rank begins after 3 s, and may have all its forward ops in pairs.
  EXPECT_EQ(found.bound.at(PipelineBoundKind::kWork).seconds, 3 + 16 * 2 * 2);
  EXPECT_GE(found.best().gap, 0);
  ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(found.best().schedule, pairs));
  EXPECT_EQ(found.best().bubble_ratio,
            BubbleRatio(ops, *SimulatePipeline(ops, TransferModel::kLatency)));
}

// Room for a microbatch of either of a rank's stages, but not of both.
TEST(ScheduleSearchTest, SaysWhenNothingFitsTheMemory) {
  PipelineProfile profile = UniformProfile(4, 0.5, 0);
  profile.rank_bytes_max.assign(2, ByteCount(1));
  for (StageIndex s = 0; s < 4; ++s) profile.stages[s].rank = LoopedRank(s, 2);
  EXPECT_THAT(SearchSchedules(profile, 4),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("expected one that fits the memory of the ranks, found none")));
}

// Windows as large as the memory, where 1F1B's are too large; larger ones where these are faster.
TEST(ScheduleSearchTest, SequencesInPartsGetOrdersOfTheirOwn) {
  PipelineProfile profile = UniformProfile(4, 0.5, 0.5);
  profile.sequence_parts = 2;
  ASSERT_OK_AND_ASSIGN(const SearchResult wide, SearchSchedules(profile, 32));
  EXPECT_NEAR(wide.best().gap, 0, 1e-9);
  EXPECT_OK(ProvePipeline(wide.best().schedule, profile));
  profile.rank_bytes_max.assign(4, ByteCount(3));
  for (const BackwardForm form : {BackwardForm::kFull, BackwardForm::kSplit}) {
    ASSERT_OK_AND_ASSIGN(const SearchResult narrow, SearchSchedules(profile, 32, {.form = form}));
    EXPECT_EQ(narrow.best().peak_bytes, ByteCount(3));
    for (const FoundSchedule& found : narrow.pareto) {
      EXPECT_OK(ProvePipeline(found.schedule, profile));
    }
  }
}

// A memory that is larger on the later rank: its window must not be.
TEST(ScheduleSearchTest, SequencesInPartsNeverWaitForThemselves) {
  PipelineProfile profile = UniformProfile(2, 1, 0.1);
  profile.sequence_parts = 2;
  profile.rank_bytes_max = {ByteCount(3), ByteCount(4)};
  ASSERT_OK_AND_ASSIGN(const SearchResult found, SearchSchedules(profile, 4));
  EXPECT_OK(ProvePipeline(found.best().schedule, profile));
  EXPECT_THAT(NamesOf(found), testing::Contains("sequence_split, 4 more"));
}

// The judge's word counts, whatever it finds.
TEST(ScheduleSearchTest, CandidatesThatCannotRunAreSkipped) {
  const PipelineProfile profile = UniformProfile(3, 1, 0.5);
  int32_t judged = 0;
  const ScheduleJudge judge = JudgeByProfile(TransferModel::kLatency);
  SearchOptions options{.judge = [&](const OpTable& ops) -> absl::StatusOr<JudgedRun> {
    if (++judged <= 2) return absl::InvalidArgumentError("not this one");
    return judge(ops);
  }};
  ASSERT_OK_AND_ASSIGN(const SearchResult found, SearchSchedules(profile, 6, options));
  EXPECT_OK(ProvePipeline(found.best().schedule, profile));
  options.judge = [](const OpTable& /*ops*/) { return absl::InvalidArgumentError("none of them"); };
  EXPECT_THAT(SearchSchedules(profile, 6, options), IsRefused("none of them"));
}

// To the last schedule, wherever the budget ends among those that have no name.
TEST(ScheduleSearchTest, NoSearchGoesOverItsBudget) {
  for (const bool is_shared : {false, true}) {
    PipelineProfile profile = UniformProfile(4, 1, 0.5);
    if (is_shared) profile = PlacedBy(LoopedRank, 2, profile);
    profile.stages[1].forward_seconds = 1.5;  // nothing reaches the bound
    for (int64_t ops_max = 1'000; ops_max < 14'000; ops_max += ops_max / 29) {
      SCOPED_TRACE(absl::StrCat(ops_max, is_shared ? " shared" : ""));
      ASSERT_OK_AND_ASSIGN(const SearchResult found,
                           SearchSchedules(profile, 5, {.ops_max = ops_max}));
      EXPECT_LE(found.ops, ops_max);
      if (!is_shared) EXPECT_GT(found.ops, ops_max / 2);
    }
  }
}

// What has a name is looked at by every search that may put one schedule in order.
TEST(ScheduleSearchTest, NoPublishedScheduleIsFasterThanAShortSearch) {
  ForEachSeed(100, [&](RandomSource& random) {
    PipelineProfile profile = RandomProfile(random, {.may_share_ranks = false, .may_skip = false});
    const BackwardForm form = random.OneIn(2) ? BackwardForm::kSplit : BackwardForm::kFull;
    const auto microbatches = static_cast<int32_t>(random.Between(1, 12));
    const int64_t ops = std::ssize(profile.stages) * microbatches * 3;
    ASSERT_OK_AND_ASSIGN(const SearchResult found,
                         SearchSchedules(profile, microbatches, {.form = form, .ops_max = ops}));
    for (const absl::string_view name : ScheduleNames()) {
      if (!CheckPlacement(name, profile).ok()) continue;
      if (form == BackwardForm::kFull && !HasWholeBackwardOps(name)) continue;
      const auto schedule =
          MakeNamedSchedule(name, {.profile = profile, .microbatches = microbatches, .form = form});
      EXPECT_LE(found.best().seconds, RunOf(schedule, profile).seconds + 1e-9) << name;
    }
  });
}

// All times are 0: there is nothing to compare with.
TEST(ScheduleSearchTest, NothingThatTakesNoTimeHasAGap) {
  ASSERT_OK_AND_ASSIGN(const SearchResult found, SearchSchedules(UniformProfile(2, 0, 0), 3));
  EXPECT_EQ(found.best().seconds, 0);
  EXPECT_EQ(found.best().gap, 0);
}

TEST(ScheduleSearchTest, SpansAreImprovedAndHaveABoundOfTheirOwn) {
  int improved = 0;
  ForEachSeed(40, [&](RandomSource& random) {
    const PipelineProfile profile =
        RandomProfile(random, {.stages_max = 4, .may_share_ranks = false});
    const BackwardForm form = random.OneIn(2) ? BackwardForm::kSplit : BackwardForm::kFull;
    ASSERT_OK_AND_ASSIGN(
        const SearchResult found,
        SearchSchedules(profile, 6, {.form = form, .objective = SearchObjective::kSpan}));
    EXPECT_GE(found.best().gap, -1e-9);
    EXPECT_NEAR(found.best().gap, found.best().span_seconds / found.bound.seconds() - 1, 1e-9);
    for (const FoundSchedule& other : found.others) {
      EXPECT_GE(other.span_seconds, found.bound.seconds() * (1 - 1e-9));
    }
    improved += found.best().name.ends_with("improved");
  });
  EXPECT_GT(improved, 5);
}

TEST(ScheduleSearchTest, RefusesWhatCannotBe) {
  PipelineProfile profile = UniformProfile(2, 1, 0);
  EXPECT_THAT(SearchSchedules(profile, 0), IsRefused("microbatches"));
  EXPECT_THAT(SearchSchedules(profile, 4, {}, [] { return true; }),
              StatusIs(absl::StatusCode::kCancelled));
  profile.rank_bytes_max[1] = ByteCount(0);
  EXPECT_THAT(SearchSchedules(profile, 4),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("1 bytes")));
}

}  // namespace
}  // namespace crossmesh
