// Closed forms of times and peaks of published schedules (uniform stages).

#include "common/testing/status_matchers.h"
#include "planner/pipeline/memory.h"
#include "planner/pipeline/pipeline_proof.h"
#include "planner/pipeline/schedules/interleaved.h"
#include "planner/pipeline/schedules/looped_bfs.h"
#include "planner/pipeline/schedules/period_law.h"
#include "planner/pipeline/schedules/placement.h"
#include "planner/pipeline/schedules/sequence_split.h"
#include "planner/pipeline/schedules/window_order.h"
#include "planner/pipeline/schedules/zero_bubble.h"
#include "planner/pipeline/schedules/zero_bubble_v.h"
#include "planner/pipeline/testing/pipeline_vectors.h"
#include "planner/pipeline/timeline.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

struct Point {
  int32_t stages = 0;
  int32_t microbatches = 0;
  double transfer = 0;
  // Times of an op of each kind; a dyadic choice keeps sums exact.
  double forward = 1, input_gradient = 1.25, weight_gradient = 0.75;

  double work() const { return forward + input_gradient + weight_gradient; }
  PipelineProfile profile() const {
    PipelineProfile profile = UniformProfile(stages, 0, transfer);
    for (StageProfile& stage : profile.stages) {
      stage.forward_seconds = forward;
      stage.input_gradient_seconds = input_gradient;
      stage.weight_gradient_seconds = weight_gradient;
    }
    return profile;
  }
};

void ForEachPoint(absl::FunctionRef<void(const Point&)> visit) {
  for (const int32_t stages : {2, 3, 4, 8}) {
    for (const int32_t microbatches : {stages, stages + 1, 2 * stages, 3 * stages + 2, 32}) {
      for (const double transfer : {0.0, 0.125, 0.5, 1.5, 2.25, 4.0}) {
        SCOPED_TRACE(
            absl::StrCat(stages, " stages, ", microbatches, " microbatches, transfers ", transfer));
        visit({.stages = stages, .microbatches = microbatches, .transfer = transfer});
      }
    }
  }
}

PipelineTimeline ProvenRunOf(const absl::StatusOr<Schedule>& schedule,
                             const PipelineProfile& profile) {
  EXPECT_OK(ProvePipeline(*schedule, profile));
  return RunOf(schedule, profile);
}

double SecondsOf(const absl::StatusOr<Schedule>& schedule, const Point& point) {
  return ProvenRunOf(schedule, point.profile()).seconds;
}

// Microbatches, or chunks of them, that each rank holds.
std::vector<int64_t> PeaksOf(const absl::StatusOr<Schedule>& schedule,
                             const PipelineProfile& profile) {
  const absl::StatusOr<PipelineProof> proof = ProvePipeline(*schedule, profile);
  EXPECT_OK(proof);
  std::vector<int64_t> peaks;
  for (const RankMemory& memory : proof->memory) peaks.push_back(memory.bytes().value());
  return peaks;
}

TEST(FamiliesTest, GpipeTakesItsTime) {
  ForEachPoint([](const Point& p) {
    EXPECT_DOUBLE_EQ(SecondsOf(MakeGpipe(p.stages, p.microbatches), p),
                     (p.microbatches + p.stages - 1) * p.work() + 2 * (p.stages - 1) * p.transfer);
  });
}

TEST(FamiliesTest, OneForwardOneBackwardHidesNoTransfers) {
  ForEachPoint([](const Point& p) {
    const int32_t s = p.stages, m = p.microbatches;
    EXPECT_DOUBLE_EQ(SecondsOf(MakeOneForwardOneBackward(s, m), p),
                     (m + s - 1) * p.work() + 2 * p.transfer * (m + s - 3 - (m - 2) / s));
  });
}

TEST(FamiliesTest, EagerHidesTransfersThatTakeNoLongerThanAMicrobatchThereAndBack) {
  ForEachPoint([](const Point& p) {
    if (2 * p.transfer > p.work()) return;
    EXPECT_DOUBLE_EQ(SecondsOf(MakeEagerOneForwardOneBackward(p.stages, p.microbatches), p),
                     (p.microbatches + p.stages - 1) * p.work() + 2 * (p.stages - 1) * p.transfer);
  });
}

TEST(FamiliesTest, WindowsThatAreLargeEnoughHideAllTransfers) {
  ForEachPoint([](const Point& p) {
    const absl::StatusOr<std::vector<int32_t>> windows =
        SmallestWindows(p.profile(), BackwardForm::kFull, p.work());
    ASSERT_OK(windows);
    for (StageIndex i = 0; i < p.stages; ++i) {
      EXPECT_EQ((*windows)[i], 1 + (p.stages - 1 - i) * (1 + std::ceil(2 * p.transfer / p.work())));
    }
    EXPECT_DOUBLE_EQ(SecondsOf(MakeWindowOrder(*windows, p.microbatches), p),
                     (p.microbatches + p.stages - 1) * p.work() + 2 * (p.stages - 1) * p.transfer);
  });
}

TEST(FamiliesTest, DelayedWeightGradientsHideTransfers) {
  ForEachPoint([](const Point& p) {
    const double least = (p.stages - 1) * (p.forward + p.input_gradient + 2 * p.transfer) +
                         p.microbatches * p.work();
    if (2 * p.transfer <= p.weight_gradient) {
      EXPECT_DOUBLE_EQ(
          SecondsOf(DelayWeightGradients(*MakeOneForwardOneBackward(p.stages, p.microbatches)), p),
          least);
    }
    if (2 * p.transfer <= p.forward + p.input_gradient + 2 * p.weight_gradient) {
      EXPECT_DOUBLE_EQ(
          SecondsOf(DelayWeightGradients(*MakeEagerOneForwardOneBackward(p.stages, p.microbatches)),
                    p),
          least);
    }
  });
}

TEST(FamiliesTest, WindowsAreWhatStagesHold) {
  EXPECT_THAT(PeaksOf(MakeGpipe(3, 7), UniformProfile(3, 1, 0)), testing::ElementsAre(7, 7, 7));
  EXPECT_THAT(PeaksOf(MakeOneForwardOneBackward(4, 3), UniformProfile(4, 1, 0)),
              testing::ElementsAre(3, 3, 2, 1));
  EXPECT_THAT(PeaksOf(MakeEagerOneForwardOneBackward(4, 6), UniformProfile(4, 1, 0)),
              testing::ElementsAre(6, 5, 3, 1));
}

PipelineProfile Looped(int32_t ranks, int32_t chunks, double seconds, double transfer) {
  return PlacedBy(LoopedRank, ranks, UniformProfile(ranks * chunks, seconds, transfer));
}

TEST(FamiliesTest, InterleavingDividesTheBubble) {
  for (const int32_t ranks : {2, 3, 4}) {
    for (const int32_t chunks : {1, 2, 3}) {
      for (const int32_t rounds : {1, 2, 4}) {
        const int32_t m = rounds * ranks;
        SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", chunks, " chunks, ", m, " microbatches"));
        for (const double transfer : {0.0, 0.25, 0.5, 1.0}) {
          if (chunks == 1 && transfer > 0) continue;  // that is 1F1B
          const PipelineProfile profile = Looped(ranks, chunks, 1, transfer);
          EXPECT_DOUBLE_EQ(
              ProvenRunOf(MakeInterleaved({.ranks = ranks, .chunks = chunks, .microbatches = m}),
                          profile)
                  .seconds,
              (chunks * m + ranks - 1) * 3 + 2 * (ranks * chunks - 1) * transfer);
        }
        const std::vector<int64_t> peaks =
            PeaksOf(MakeInterleaved({.ranks = ranks, .chunks = chunks, .microbatches = m}),
                    Looped(ranks, chunks, 1, 0));
        for (RankIndex rank = 0; rank < ranks; ++rank) {
          EXPECT_EQ(peaks[rank],
                    std::min((chunks - 1) * ranks + 2 * (ranks - 1 - rank) + 1, m * chunks));
        }
      }
    }
  }
}

// Written by PyTorch 2.13, for 2 and 3 ranks.
TEST(FamiliesTest, InterleavedZeroBubbleIsThatOfPyTorch) {
  EXPECT_EQ(ToString(*MakeInterleavedZeroBubble({.ranks = 2, .chunks = 2, .microbatches = 4})),
            "0F0 0F1 2F0 2F1 2I0 2W0 0F2 2I1 2W1 0F3 0I0 0W0 2F2 0I1 0W1 2F3 2I2 2W2 2I3 2W3 0I2 "
            "0W2 0I3 0W3\n"
            "1F0 1F1 3F0 3I0 3F1 3I1 3W0 1F2 1I0 3W1 1F3 1I1 1W0 3F2 3I2 1W1 3F3 3I3 3W2 1I2 3W3 "
            "1I3 1W2 1W3\n");
  EXPECT_EQ(ToString(*MakeInterleavedZeroBubble({.ranks = 3, .chunks = 2, .microbatches = 6})),
            "0F0 0F1 0F2 3F0 3F1 3F2 3I0 3W0 0F3 3I1 3W1 0F4 3I2 3W2 0F5 0I0 0W0 3F3 0I1 0W1 3F4 "
            "0I2 0W2 3F5 3I3 3W3 3I4 3W4 3I5 3W5 0I3 0W3 0I4 0W4 0I5 0W5\n"
            "1F0 1F1 1F2 4F0 4F1 4I0 4F2 4I1 4W0 1F3 4I2 4W1 1F4 1I0 4W2 1F5 1I1 1W0 4F3 1I2 1W1 "
            "4F4 4I3 1W2 4F5 4I4 4W3 4I5 4W4 1I3 4W5 1I4 1W3 1I5 1W4 1W5\n"
            "2F0 2F1 2F2 5F0 5I0 5F1 5I1 5F2 5I2 5W0 2F3 2I0 5W1 2F4 2I1 5W2 2F5 2I2 2W0 5F3 5I3 "
            "2W1 5F4 5I4 2W2 5F5 5I5 5W3 2I3 5W4 2I4 5W5 2I5 2W3 2W4 2W5\n");
}

// The bubble of ZB-H1 over the chunks, where 1F1B's is that of whole backward ops.
TEST(FamiliesTest, InterleavedZeroBubbleShortensTheBubble) {
  for (const int32_t ranks : {2, 3, 4}) {
    for (const int32_t chunks : {2, 3}) {
      const InterleavedCounts counts = {
          .ranks = ranks, .chunks = chunks, .microbatches = 4 * ranks};
      const PipelineProfile profile = Looped(ranks, chunks, 1, 0);
      EXPECT_LT(ProvenRunOf(MakeInterleavedZeroBubble(counts), profile).seconds,
                ProvenRunOf(DelayWeightGradients(*MakeInterleaved(counts)), profile).seconds);
      const std::vector<int64_t> peaks = PeaksOf(MakeInterleavedZeroBubble(counts), profile);
      EXPECT_LE(std::ranges::max(peaks),
                std::ranges::max(PeaksOf(MakeInterleaved(counts), profile)));
    }
  }
}

TEST(FamiliesTest, LoopedBreadthFirstHoldsEverything) {
  for (const int32_t ranks : {2, 4}) {
    for (const int32_t m : {2 * ranks, 3 * ranks}) {
      const auto schedule = MakeLoopedBreadthFirst(ranks, 2, m);
      for (const double transfer : {0.0, 0.05, 0.25}) {
        EXPECT_NEAR(ProvenRunOf(schedule, Looped(ranks, 2, 0.5, transfer)).seconds,
                    m * 3 + (ranks - 1) * 1.5 + 2 * (ranks - 1) * transfer, 1e-9);
      }
      EXPECT_THAT(PeaksOf(schedule, Looped(ranks, 2, 1, 0)), testing::Each(2 * m));
    }
  }
}

TEST(FamiliesTest, ZeroBubbleShortensTheSpan) {
  for (const int32_t stages : {4, 8}) {
    const int32_t m = 3 * stages;
    for (const auto& [forward, input, weight] :
         {std::tuple(1.0, 1.0, 1.0), std::tuple(1.0, 1.25, 0.75), std::tuple(1.0, 1.0, 0.5)}) {
      const Point point = {.stages = stages,
                           .microbatches = m,
                           .forward = forward,
                           .input_gradient = input,
                           .weight_gradient = weight};
      const PipelineTimeline h1 = ProvenRunOf(MakeZeroBubbleH1(stages, m), point.profile());
      const PipelineTimeline h2 = ProvenRunOf(MakeZeroBubbleH2(stages, m), point.profile());
      EXPECT_DOUBLE_EQ(h1.span_seconds,
                       m * point.work() + (stages - 1) * (forward + input - weight));
      EXPECT_DOUBLE_EQ(h2.span_seconds,
                       m * point.work() + (stages - 1) * (forward + input - 2 * weight));
    }
    EXPECT_THAT(PeaksOf(MakeZeroBubbleH1(stages, m), UniformProfile(stages, 1, 0)),
                testing::Each(stages));
    EXPECT_THAT(PeaksOf(MakeZeroBubbleH2(stages, m), UniformProfile(stages, 1, 0)),
                testing::Each(2 * stages - 1));
    for (const double transfer : {0.0, 0.25, 0.5, 1.0}) {
      const PipelineProfile profile = UniformProfile(stages, 1, transfer);
      EXPECT_DOUBLE_EQ(ProvenRunOf(MakeZeroBubbleH2(stages, m), profile).seconds,
                       3 * m + stages - 1 + (stages - 1) * transfer);
      if (2 * transfer > 1) continue;
      EXPECT_DOUBLE_EQ(ProvenRunOf(MakeZeroBubbleH1(stages, m), profile).seconds,
                       3 * m + stages - 1 + 4 * (stages - 1) * transfer);
    }
  }
}

TEST(FamiliesTest, ZeroBubbleVHasNoBubbleInASpan) {
  for (const int32_t ranks : {1, 2, 3, 5, 8}) {
    for (const int32_t m : {2 * ranks, 3 * ranks, 4 * ranks + 1}) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", m, " microbatches"));
      const PipelineProfile profile = PlacedBy(VRank, ranks, UniformProfile(2 * ranks, 0.5, 0));
      const auto schedule = MakeZeroBubbleV(ranks, m);
      const PipelineTimeline run = ProvenRunOf(schedule, profile);
      EXPECT_DOUBLE_EQ(run.span_seconds, 3 * m);
      EXPECT_DOUBLE_EQ(run.seconds, 3 * m + (ranks - 1) * 0.5);
      EXPECT_THAT(PeaksOf(schedule, profile), testing::Each(2 * ranks));
    }
  }
}

TEST(FamiliesTest, PartsOfSequencesDivideTheBubbleAndTheMemory) {
  for (const int32_t stages : {2, 4, 8}) {
    for (const int32_t parts : {1, 2, 4}) {
      const int32_t m = 2 * stages;
      SCOPED_TRACE(absl::StrCat(stages, " stages, ", parts, " parts"));
      const PipelineProfile profile = UniformProfile(stages, 1.0 / parts, 0);
      const auto schedule = MakeSequenceSplit(stages, m, parts);
      EXPECT_DOUBLE_EQ(ProvenRunOf(schedule, profile).seconds,
                       3.0 * m + (stages - 1) * 3.0 / parts);
      const std::vector<int64_t> peaks = PeaksOf(schedule, profile);
      for (StageIndex i = 0; i < stages; ++i) EXPECT_EQ(peaks[i], stages - i - 1 + parts);
    }
  }
  EXPECT_EQ(MakeSequenceSplit(4, 8, 1), MakeOneForwardOneBackward(4, 8));
}

// Of windows as eager-1F1B has them: transfers are hidden, where 1F1B's windows pay for each.
TEST(FamiliesTest, LargerWindowsHideTransfersOfParts) {
  const PipelineProfile profile = UniformProfile(4, 0.5, 0.5);
  const std::vector<int32_t> eager = {7, 5, 3, 1};
  const auto schedule = MakeSequenceSplit(eager, 16, 2);
  EXPECT_DOUBLE_EQ(ProvenRunOf(schedule, profile).seconds, 3 * 16 + 3 * (1.5 + 2 * 0.5));
  EXPECT_GT(ProvenRunOf(MakeSequenceSplit(4, 16, 2), profile).seconds, 1.2 * 3 * 16);
  EXPECT_THAT(PeaksOf(schedule, profile), testing::ElementsAre(8, 6, 4, 2));
}

}  // namespace
}  // namespace crossmesh
