#include "planner/pipeline/schedules/period_law.h"

#include "common/plan/testing/for_each_seed.h"
#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/schedules/window_order.h"
#include "planner/pipeline/testing/pipeline_vectors.h"
#include "planner/pipeline/testing/random_pipeline.h"
#include "planner/pipeline/timeline.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using Json = nlohmann::json;

TEST(PeriodLawTest, WindowsAndPeriodsAreThoseOfTheCases) {
  const Json& cases = PipelineCases("window_cases");
  ASSERT_EQ(cases.size(), 7u);
  for (const Json& json : cases) {
    SCOPED_TRACE(json.dump());
    const PipelineProfile profile = ProfileOf(json);
    const BackwardForm form = json["split"] ? BackwardForm::kSplit : BackwardForm::kFull;
    ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> windows,
                         SmallestWindows(profile, form, json["target_period"]));
    EXPECT_EQ(Json(windows), json["min_window"]);
    std::vector<int32_t> plain, eager;
    for (int32_t left = json["stages"]; left > 0; --left) {
      plain.push_back(left);
      eager.push_back(2 * left - 1);
    }
    EXPECT_NEAR(*PeriodOfWindows(profile, form, windows), json["period_of_window"], 1e-6);
    EXPECT_NEAR(*PeriodOfWindows(profile, form, plain), json["period_of_1f1b"], 1e-6);
    EXPECT_NEAR(*PeriodOfWindows(profile, form, eager), json["period_of_eager"], 1e-6);
  }
}

// Two runs that differ by some microbatches differ by as many periods, in the long run.
TEST(PeriodLawTest, PeriodsAreThoseOfRuns) {
  ForEachSeed(60, [&](RandomSource& random) {
    const PipelineProfile profile =
        RandomProfile(random, {.may_share_ranks = false, .may_skip = false});
    const BackwardForm form = random.OneIn(2) ? BackwardForm::kSplit : BackwardForm::kFull;
    std::vector<int32_t> windows(profile.stages.size(), 1);
    for (size_t i = windows.size() - 1; i-- > 0;) {
      windows[i] = windows[i + 1] + static_cast<int32_t>(random.Between(0, 3));
    }
    ASSERT_OK_AND_ASSIGN(const double period, PeriodOfWindows(profile, form, windows));
    const auto seconds = [&](int32_t microbatches) {
      absl::StatusOr<Schedule> schedule = MakeWindowOrder(windows, microbatches);
      if (form == BackwardForm::kSplit) schedule = DelayWeightGradients(*schedule);
      return RunOf(schedule, profile).seconds;
    };
    constexpr int32_t kBlock = 2520;  // steady states repeat after divisors of it, or nearly
    EXPECT_NEAR((seconds(200 + kBlock) - seconds(200)) / kBlock, period, 1e-3 * period);
  });
}

TEST(PeriodLawTest, SmallestWindowsKeepThePeriodAndNoSmallerOnesDo) {
  ForEachSeed(300, [&](RandomSource& random) {
    const PipelineProfile profile =
        RandomProfile(random, {.may_share_ranks = false, .may_skip = false});
    const BackwardForm form = random.OneIn(2) ? BackwardForm::kSplit : BackwardForm::kFull;
    const double wished =
        LongestStageSeconds(profile) * (1 + static_cast<double>(random.Between(0, 8)) / 16);
    ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> windows,
                         SmallestWindows(profile, form, wished));
    ASSERT_OK_AND_ASSIGN(const double period, PeriodOfWindows(profile, form, windows));
    EXPECT_LE(period, wished * (1 + 1e-9));
    for (size_t i = 0; i < windows.size(); ++i) {
      std::vector<int32_t> smaller = windows;
      --smaller[i];
      if (smaller[i] < 1 || (i + 1 < windows.size() && smaller[i] < smaller[i + 1])) continue;
      EXPECT_GT(*PeriodOfWindows(profile, form, smaller), wished * (1 - 1e-9)) << "stage " << i;
    }
  });
}

TEST(PeriodLawTest, FastestWindowsAreTheFastestOfAllThatFit) {
  ForEachSeed(100, [&](RandomSource& random) {
    const PipelineProfile profile =
        RandomProfile(random, {.stages_max = 4, .may_share_ranks = false, .may_skip = false});
    const BackwardForm form = random.OneIn(2) ? BackwardForm::kSplit : BackwardForm::kFull;
    std::vector<int32_t> most(profile.stages.size());
    for (int32_t& window : most) window = static_cast<int32_t>(random.Between(1, 5));
    ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> found, FastestWindows(profile, form, most));
    ASSERT_OK_AND_ASSIGN(const double period, PeriodOfWindows(profile, form, found));
    std::vector<int32_t> windows(most.size(), 1);
    for (size_t i = 0; i < windows.size();) {  // counts through all that fit
      const absl::StatusOr<double> other = PeriodOfWindows(profile, form, windows);
      if (other.ok()) EXPECT_GE(*other, period * (1 - 1e-5));
      for (i = 0; i < windows.size() && ++windows[i] > most[i]; ++i) windows[i] = 1;
    }
    EXPECT_TRUE(std::ranges::equal(found, most, std::ranges::less_equal()));
  });
}

TEST(PeriodLawTest, RefusesWhatItCannotSay) {
  PipelineProfile profile = UniformProfile(3, 1, 0);
  EXPECT_THAT(SmallestWindows(profile, BackwardForm::kFull, 2.5),
              IsRefused("expected at least the longest work of a stage, 3, found 2.5"));
  EXPECT_THAT(PeriodOfWindows(profile, BackwardForm::kFull, std::vector<int32_t>{1, 2, 1}),
              IsRefused("windows"));
  EXPECT_THAT(PeriodOfWindows(profile, BackwardForm::kFull, std::vector<int32_t>{2, 1}),
              IsRefused("expected 3"));
  profile.edges.push_back({.from = 0, .to = 2});
  EXPECT_THAT(SmallestWindows(profile, BackwardForm::kFull, 3), IsRefused("found 3 edges"));
  profile.edges.erase(profile.edges.begin());
  EXPECT_THAT(CheckChain(profile), IsRefused("edge 0 from stage 1 to 2"));
  profile.rank_bytes_max.resize(2);
  profile.stages[2].rank = 0;
  EXPECT_THAT(CheckChain(profile), IsRefused("stage 2 on rank 0"));
}

}  // namespace
}  // namespace crossmesh
