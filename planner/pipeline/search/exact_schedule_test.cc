#include "planner/pipeline/search/testing/exact_schedule.h"

#include "common/plan/testing/for_each_seed.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/bound.h"
#include "planner/pipeline/memory.h"
#include "planner/pipeline/pipeline_proof.h"
#include "planner/pipeline/search/testing/shared_pipeline.h"
#include "planner/pipeline/testing/pipeline_vectors.h"
#include "planner/pipeline/testing/random_pipeline.h"
#include "planner/pipeline/timeline.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int64_t kNodesMax = 3'000'000;

double SecondsOf(const Schedule& schedule, const PipelineProfile& profile) {
  return RunOf(schedule, profile).seconds;
}

TEST(ExactScheduleTest, TimesAreThoseOfTheCases) {
  const nlohmann::json& cases = PipelineCases("exact_cases");
  ASSERT_EQ(cases.size(), 6u);
  for (const nlohmann::json& json : cases) {
    SCOPED_TRACE(json.dump());
    PipelineProfile profile = ProfileOf(json);
    for (size_t s = 0; s < json["cap"].size(); ++s) {
      profile.rank_bytes_max[s] = ByteCount(json["cap"][s].get<int64_t>());
    }
    const BackwardForm form = json["split"] ? BackwardForm::kSplit : BackwardForm::kFull;
    ASSERT_OK_AND_ASSIGN(const ExactSchedule exact,
                         FindExactSchedule(profile, json["microbatches"], form, kNodesMax));
    EXPECT_NEAR(exact.seconds, json["optimal_iteration_time"], 1e-6);
    EXPECT_NEAR(SecondsOf(exact.schedule, profile), exact.seconds, 1e-6);
    EXPECT_OK(ProvePipeline(exact.schedule, profile));
  }
}

// The least time of all orders in which each stage takes microbatches in ascending order: counts
// through all that can run. Nothing when there are more than kOrdersMax.
class Enumeration {
 public:
  Enumeration(const PipelineProfile& profile, int32_t microbatches, BackwardForm form)
      : profile_(profile) {
    schedule_.stages = static_cast<int32_t>(profile.stages.size());
    schedule_.microbatches = microbatches;
    schedule_.ranks.resize(profile.ranks());
    for (StageIndex s = 0; s < schedule_.stages; ++s) {
      if (form == BackwardForm::kFull) {
        kinds_ = {OpKind::kForward, OpKind::kBackward};
      } else {
        kinds_ = {OpKind::kForward, OpKind::kInputGradient, OpKind::kWeightGradient};
      }
      next_.emplace_back(kinds_.size(), 0);
    }
  }

  std::optional<double> Find() {
    FillRank(0);
    return orders_ <= kOrdersMax ? std::optional(least_) : std::nullopt;
  }

 private:
  static constexpr int kOrdersMax = 4'000;

  // All merges of the queues of the stages of one rank, then of the next.
  void FillRank(RankIndex rank) {
    if (orders_ > kOrdersMax) return;
    if (rank == profile_.ranks()) return Measure();
    bool is_full = true;
    for (StageIndex s = 0; s < schedule_.stages; ++s) {
      if (profile_.stages[s].rank != rank) continue;
      for (size_t k = 0; k < kinds_.size(); ++k) {
        MicrobatchIndex& next = next_[s][k];
        if (next == schedule_.microbatches) continue;
        is_full = false;
        if (k > 0 && next_[s][k - 1] <= next) continue;  // after its own forward op
        schedule_.ranks[rank].push_back({kinds_[k], s, next++});
        FillRank(rank);
        --next;
        schedule_.ranks[rank].pop_back();
      }
    }
    if (is_full) FillRank(rank + 1);
  }

  void Measure() {
    ++orders_;
    const absl::StatusOr<OpTable> ops = OpTable::Create(schedule_, profile_);
    if (!CheckMemory(*ops, PeakMemory(*ops)).ok()) return;
    const absl::StatusOr<PipelineTimeline> run = SimulatePipeline(*ops, TransferModel::kLatency);
    if (run.ok()) least_ = std::min(least_, run->seconds);
  }

  const PipelineProfile& profile_;
  Schedule schedule_;
  std::vector<OpKind> kinds_;
  std::vector<std::vector<MicrobatchIndex>> next_;  // by stage and kind
  int orders_ = 0;
  double least_ = 1e30;
};

TEST(ExactScheduleTest, NoOtherOrderIsFaster) {
  int limited = 0, counted = 0;
  const int64_t cases = RandomCases(200);
  ForEachSeed(cases, [&](RandomSource& random) {
    PipelineProfile profile = RandomProfile(random, {.stages_max = 3});
    const BackwardForm form = random.OneIn(3) ? BackwardForm::kSplit : BackwardForm::kFull;
    const bool is_split = form == BackwardForm::kSplit;
    const int32_t microbatches = profile.stages.size() > 2 || is_split ? 2 : 3;
    const bool is_limited = random.OneIn(2);
    if (is_limited) {
      const Schedule some = RandomSchedule(random, profile, microbatches, form, true);
      const absl::StatusOr<OpTable> ops = OpTable::Create(some, profile);
      const std::vector<RankMemory> memory = PeakMemory(*ops);
      for (RankIndex rank = 0; rank < profile.ranks(); ++rank) {
        profile.rank_bytes_max[rank] = memory[rank].bytes();
      }
    }
    const std::optional<double> least = Enumeration(profile, microbatches, form).Find();
    if (!least.has_value()) return;
    ++counted;
    limited += is_limited;
    ASSERT_OK_AND_ASSIGN(const ExactSchedule exact,
                         FindExactSchedule(profile, microbatches, form, kNodesMax));
    EXPECT_NEAR(exact.seconds, *least, 1e-6);
    EXPECT_NEAR(SecondsOf(exact.schedule, profile), exact.seconds, 1e-6);
    EXPECT_OK(ProvePipeline(exact.schedule, profile));
  });
  RecordProperty("counted", counted);
  EXPECT_GT(counted, cases / 2);
  EXPECT_GT(limited, cases / 5);
}

// Rank 0 has the first and the last stage: when their ops change places it is free as soon, but the
// output of one of them comes later, which is what the rank in between waits for.
TEST(ExactScheduleTest, NoOtherOrderOfALoopIsFaster) {
  ForEachSeed(100, [](RandomSource& random) {
    PipelineProfile profile = UniformProfile(3, 1, 0);
    profile.rank_bytes_max.resize(2);
    for (StageProfile& stage : profile.stages) {
      stage = {.rank = stage.rank % 2,
               .forward_seconds = static_cast<double>(random.Between(1, 8)) / 4,
               .input_gradient_seconds = static_cast<double>(random.Between(1, 8)) / 4};
    }
    ASSERT_OK_AND_ASSIGN(const ExactSchedule exact,
                         FindExactSchedule(profile, 2, BackwardForm::kFull, kNodesMax));
    const std::optional<double> least = Enumeration(profile, 2, BackwardForm::kFull).Find();
    ASSERT_TRUE(least.has_value());
    EXPECT_NEAR(exact.seconds, *least, 1e-6);
  });
}

// Stages alone on their ranks, of unequal times, with memory for few microbatches, some of it free
// only after the gradient of the weights.
PipelineProfile NarrowPipeline(RandomSource& random) {
  PipelineProfile profile = UniformProfile(static_cast<int32_t>(random.Between(2, 3)), 1, 0);
  const auto time = [&](int64_t least) {
    return static_cast<double>(random.Between(least, 8)) / 4;
  };
  for (StageProfile& stage : profile.stages) {
    stage.forward_seconds = time(1);
    stage.input_gradient_seconds = time(1);
    stage.weight_gradient_seconds = time(1);
    stage.input_gradient_bytes = ByteCount(random.Between(0, 1));
    profile.rank_bytes_max[stage.rank] =
        stage.activation_bytes() * random.Between(1, 3) + ByteCount(random.Between(0, 1));
  }
  if (profile.stages.size() == 3 && random.OneIn(3)) {
    profile.edges.push_back({.from = 0, .to = 2});
  }
  for (EdgeProfile& edge : profile.edges) {
    edge.forward_seconds = time(0);
    edge.backward_seconds = time(0);
  }
  return profile;
}

TEST(ExactScheduleTest, TheBoundIsNotAboveTheLeastTime) {
  int binding = 0, met = 0;  // by the ramps
  ForEachSeed(2000, [&](RandomSource& random) {
    const PipelineProfile profile = NarrowPipeline(random);
    const BackwardForm form = random.OneIn(2) ? BackwardForm::kSplit : BackwardForm::kFull;
    const auto microbatches = static_cast<int32_t>(random.Between(1, 6));
    const absl::StatusOr<ExactSchedule> exact =
        FindExactSchedule(profile, microbatches, form, kNodesMax);
    if (absl::IsResourceExhausted(exact.status())) return;  // too many orders
    ASSERT_OK(exact);
    ASSERT_OK_AND_ASSIGN(const PipelineBound bound,
                         ComputePipelineBound(profile, microbatches, form));
    EXPECT_LE(bound.seconds(), exact->seconds + 1e-9);
    if (bound.kind() != PipelineBoundKind::kRamps) return;
    ++binding;
    if (bound.seconds() > exact->seconds - 1e-9) ++met;
  });
  EXPECT_GT(binding, 300);
  EXPECT_GT(met, 200);
}

// Of ranks with several stages: within a tenth of it in the mean.
TEST(ExactScheduleTest, TheBoundOfSharedRanksIsNearTheLeastTime) {
  double sum = 0;
  int solved = 0, binding = 0;  // by ramps or windows
  ForEachSeed(FromEnvironment("CROSSMESH_CASES", 120), [&](RandomSource& random) {
    const auto [profile, microbatches] = RandomSharedPipeline(random);
    const BackwardForm form = random.OneIn(2) ? BackwardForm::kSplit : BackwardForm::kFull;
    const absl::StatusOr<ExactSchedule> exact =
        FindExactSchedule(profile, microbatches, form, 30'000);
    if (absl::IsResourceExhausted(exact.status())) return;  // too many orders
    ASSERT_OK(exact);
    ASSERT_OK_AND_ASSIGN(const PipelineBound bound,
                         ComputePipelineBound(profile, microbatches, form));
    EXPECT_LE(bound.seconds(), exact->seconds + 1e-9);
    ASSERT_OK_AND_ASSIGN(const PipelineBound span, ComputeSpanBound(profile, microbatches, form));
    EXPECT_LE(span.seconds(), RunOf(exact->schedule, profile).span_seconds + 1e-9);
    sum += exact->seconds / bound.seconds() - 1;
    ++solved;
    binding += bound.kind() == PipelineBoundKind::kRamps;
    binding += bound.kind() == PipelineBoundKind::kWindow;
  });
  RecordProperty("gap", absl::StrCat(sum / solved));
  EXPECT_GE(solved, 35);
  EXPECT_GE(binding, solved / 3);
  EXPECT_LE(sum / solved, 0.1);
}

TEST(ExactScheduleTest, GivesUpWhereItIsTold) {
  EXPECT_THAT(
      FindExactSchedule(UniformProfile(3, 1, 0.5), 6, BackwardForm::kSplit, 10),
      StatusIs(absl::StatusCode::kResourceExhausted, testing::HasSubstr("at most 10 nodes")));
  PipelineProfile profile = UniformProfile(2, 1, 0.5);
  profile.rank_bytes_max[0] = ByteCount(0);
  EXPECT_THAT(FindExactSchedule(profile, 6, BackwardForm::kFull, kNodesMax),
              StatusIs(absl::StatusCode::kResourceExhausted, testing::HasSubstr("rank 0")));
}

}  // namespace
}  // namespace crossmesh
