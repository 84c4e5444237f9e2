#include "planner/pipeline/bound.h"

#include "common/plan/testing/for_each_seed.h"
#include "common/testing/is_refused.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/memory.h"
#include "planner/pipeline/testing/pipeline_vectors.h"
#include "planner/pipeline/testing/random_pipeline.h"
#include "planner/pipeline/timeline.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

TEST(PipelineBoundTest, TermsAreThoseOfTheCases) {
  const nlohmann::json& cases = PipelineCases("lower_bound_cases");
  ASSERT_EQ(cases.size(), 6u);
  for (const nlohmann::json& json : cases) {
    SCOPED_TRACE(json.dump());
    PipelineProfile profile = ProfileOf(json);
    if (!json["cap"].is_null()) {
      for (size_t s = 0; s < json["cap"].size(); ++s) {
        profile.rank_bytes_max[s] = ByteCount(json["cap"][s].get<int64_t>());
      }
    }
    const BackwardForm form = json["split"] ? BackwardForm::kSplit : BackwardForm::kFull;
    ASSERT_OK_AND_ASSIGN(const PipelineBound bound,
                         ComputePipelineBound(profile, json["microbatches"], form));
    const nlohmann::json& expected = json["bounds"];
    EXPECT_NEAR(bound.at(PipelineBoundKind::kWork).seconds, expected["work"], 1e-6);
    EXPECT_NEAR(bound.at(PipelineBoundKind::kStartup).seconds, expected["startup"], 1e-6);
    EXPECT_NEAR(bound.at(PipelineBoundKind::kWindow).seconds, expected["window"], 1e-6);
    EXPECT_NEAR(std::max({bound.at(PipelineBoundKind::kWork).seconds,
                          bound.at(PipelineBoundKind::kStartup).seconds,
                          bound.at(PipelineBoundKind::kWindow).seconds}),
                expected["best"], 1e-6);
    EXPECT_EQ(bound.at(PipelineBoundKind::kPorts).seconds, 0);
  }
}

// Any schedule proves that the bound for its own memory is none too high.
TEST(PipelineBoundTest, NoScheduleIsFaster) {
  ForEachSeed(FromEnvironment("CROSSMESH_CASES", 1000), [&](RandomSource& random, uint64_t seed) {
    PipelineProfile profile = RandomProfile(random);
    const BackwardForm form = random.OneIn(2) ? BackwardForm::kSplit : BackwardForm::kFull;
    const auto microbatches = static_cast<int32_t>(random.Between(1, 8));
    Schedule schedule = RandomSchedule(random, profile, microbatches, form, random.OneIn(2));
    if (random.OneIn(2)) {
      AddRandomPairs(random, profile);
      FuseRandomOps(random, profile, schedule);
    }
    AddRandomPorts(random, profile);
    if (random.OneIn(2)) AddRandomScales(random, microbatches, profile);
    ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
    const std::vector<RankMemory> memory = PeakMemory(ops);
    for (RankIndex rank = 0; rank < profile.ranks(); ++rank) {
      profile.rank_bytes_max[rank] = memory[rank].bytes();
    }
    for (const TransferModel model : kAllTransferModels) {
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", TransferModelName(model)));
      ASSERT_OK_AND_ASSIGN(const PipelineTimeline run, SimulatePipeline(ops, model));
      ASSERT_OK_AND_ASSIGN(const PipelineBound bound,
                           ComputePipelineBound(profile, microbatches, form, model));
      EXPECT_LE(bound.seconds(), run.seconds + 1e-9)
          << PipelineBoundKindName(bound.kind()) << " of " << bound.at(bound.kind()).place;
      ASSERT_OK_AND_ASSIGN(const PipelineBound span, ComputeSpanBound(profile, microbatches, form));
      EXPECT_LE(span.seconds(), run.span_seconds + 1e-9)
          << PipelineBoundKindName(span.kind()) << " of " << span.at(span.kind()).place;
    }
  });
}

// Both stages of a rank may have all their forward ops in pairs: the one saves 0.5 with its own
// backward ops and 0.75 with those of the other, which saves nothing.
TEST(PipelineBoundTest, PairsMaySaveWork) {
  PipelineProfile profile = UniformProfile(2, 1, 0);
  profile.rank_bytes_max.resize(1);
  profile.stages[1].rank = 0;
  profile.pairs = {{0, 0, 2.5}, {0, 1, 2.25}, {1, 0, 3.5}};
  for (const BackwardForm form : {BackwardForm::kFull, BackwardForm::kSplit}) {
    ASSERT_OK_AND_ASSIGN(const PipelineBound bound, ComputePipelineBound(profile, 8, form));
    EXPECT_EQ(bound.at(PipelineBoundKind::kWork).seconds, 8 * (6 - 0.75));
    EXPECT_EQ(bound.kind(), PipelineBoundKind::kWork);
  }
  // A stage alone on its rank.
  profile = UniformProfile(2, 1, 0);
  profile.pairs = {{1, 1, 2}};
  ASSERT_OK_AND_ASSIGN(const PipelineBound alone,
                       ComputePipelineBound(profile, 8, BackwardForm::kFull));
  EXPECT_EQ(alone.at(PipelineBoundKind::kWork).seconds, 8 * 3);
  EXPECT_EQ(alone.at(PipelineBoundKind::kRamps).place, "stage 0");
}

// Two stages to a rank, of ops that take a second, and transfers that take none: rank 0 has stages
// 0 and 2, whose round trips take 12 and 6 s.
TEST(PipelineBoundTest, StagesOfOneRankShareItsMemory) {
  PipelineProfile profile = UniformProfile(4, 1, 0);
  profile.rank_bytes_max.resize(2);
  for (StageIndex s = 0; s < 4; ++s) profile.stages[s].rank = s % 2;
  profile.rank_bytes_max[0] = ByteCount(2);
  ASSERT_OK_AND_ASSIGN(const PipelineBound window,
                       ComputePipelineBound(profile, 8, BackwardForm::kFull));
  EXPECT_EQ(window.kind(), PipelineBoundKind::kWindow);
  EXPECT_EQ(window.at(window.kind()).place, "rank 0");
  EXPECT_EQ(window.seconds(), 8 * (12 + 6) / 2);
  // The first gradient can be back after 6 s, in which the rank has two forward ops to do. After
  // its last forward op, of stage 2, it has 9 s to the end, and two backward ops, 4 s, to do.
  EXPECT_EQ(window.at(PipelineBoundKind::kRamps).seconds, 8 * 6 + (6 - 2) + (9 - 4));

  // One microbatch, with memory for all of it: either wait may be in the other.
  profile.rank_bytes_max[0].reset();
  ASSERT_OK_AND_ASSIGN(const PipelineBound free,
                       ComputePipelineBound(profile, 1, BackwardForm::kFull));
  EXPECT_EQ(free.at(PipelineBoundKind::kRamps).seconds, 6 + (9 - 4));
  EXPECT_EQ(free.seconds(), 12);
}

TEST(PipelineBoundTest, SaysWhatBinds) {
  PipelineProfile profile = UniformProfile(2, 1, 0);
  profile.stages[1].forward_seconds = 3;
  ASSERT_OK_AND_ASSIGN(const PipelineBound work,
                       ComputePipelineBound(profile, 8, BackwardForm::kFull));
  EXPECT_EQ(work.kind(), PipelineBoundKind::kWork);
  EXPECT_EQ(work.at(work.kind()).place, "rank 1");

  profile.rank_bytes_max[0] = ByteCount(1);
  ASSERT_OK_AND_ASSIGN(const PipelineBound window,
                       ComputePipelineBound(profile, 8, BackwardForm::kFull));
  EXPECT_EQ(window.kind(), PipelineBoundKind::kWindow);
  EXPECT_EQ(window.at(window.kind()).place, "stage 0");
  EXPECT_EQ(window.seconds(), 8 * 8);

  profile.edges[0].backward_seconds = 20;
  profile.rank_bytes_max[0].reset();
  ASSERT_OK_AND_ASSIGN(const PipelineBound ports,
                       ComputePipelineBound(profile, 8, BackwardForm::kFull, TransferModel::kLink));
  EXPECT_EQ(ports.kind(), PipelineBoundKind::kPorts);
  EXPECT_EQ(ports.at(ports.kind()).place, "transfer 0B1");
  EXPECT_EQ(ports.seconds(), 1 + 3 + 2 + 8 * 20 + 2);
}

// Stage 1 has memory for one microbatch, so it can delay one gradient of the weights, 1 s, of the 2
// s that the last gradient of the input takes through stage 0.
TEST(PipelineBoundTest, TheWayBackOfTheLastMicrobatchIsStillToCome) {
  PipelineProfile profile = UniformProfile(2, 1, 0);
  profile.rank_bytes_max[1] = ByteCount(1);
  ASSERT_OK_AND_ASSIGN(const PipelineBound split,
                       ComputePipelineBound(profile, 8, BackwardForm::kSplit));
  EXPECT_EQ(split.kind(), PipelineBoundKind::kRamps);
  EXPECT_EQ(split.at(split.kind()).place, "stage 1");
  EXPECT_EQ(split.seconds(), 1 + 8 * 3 + 1);

  // Backward ops in one: from the begin of its last forward op on stage 0 has that and two backward
  // ops to do, 5 s, and 14 s to the end. At the begin it waits as long for the first gradient, but
  // for one forward op more.
  profile = UniformProfile(2, 1, 4);
  profile.rank_bytes_max[0] = ByteCount(2);
  ASSERT_OK_AND_ASSIGN(const PipelineBound full,
                       ComputePipelineBound(profile, 8, BackwardForm::kFull));
  EXPECT_EQ(full.at(PipelineBoundKind::kRamps).seconds, 8 * 3 + (12 - 2) + (14 - 5));
}

// A rank that sends and receives computes nothing meanwhile.
TEST(PipelineBoundTest, TransfersAreWorkOfRanksThatBlock) {
  const PipelineProfile profile = UniformProfile(2, 1, 0.75);
  ASSERT_OK_AND_ASSIGN(
      const PipelineBound bound,
      ComputePipelineBound(profile, 32, BackwardForm::kFull, TransferModel::kBlocking));
  EXPECT_EQ(bound.kind(), PipelineBoundKind::kPorts);
  EXPECT_EQ(bound.seconds(), 1 + 32 * 4.5);  // v31 takes 147
}

TEST(PipelineBoundTest, SaysTheLeastMemoryThatCouldDo) {
  PipelineProfile profile = UniformProfile(2, 1, 0);
  profile.stages[1].static_bytes = ByteCount(100);
  profile.stages[1].input_gradient_bytes = ByteCount(20);
  profile.edges[0].forward_bytes = ByteCount(3);
  profile.rank_bytes_max[1] = ByteCount(123);
  EXPECT_THAT(ComputePipelineBound(profile, 8, BackwardForm::kFull),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("rank 1: expected room for a microbatch of stage 1, which takes "
                                 "124 B (124 bytes) in all, found 123 B")));
  profile.rank_bytes_max[1] = ByteCount(124);
  EXPECT_OK(ComputePipelineBound(profile, 8, BackwardForm::kFull));
  EXPECT_THAT(ComputePipelineBound(profile, 0, BackwardForm::kFull), IsRefused("microbatches"));
}

}  // namespace
}  // namespace crossmesh
