// What schedules make of tests/data/pipeline_vectors.json.

#include "common/testing/status_matchers.h"
#include "planner/pipeline/memory.h"
#include "planner/pipeline/pipeline_proof.h"
#include "planner/pipeline/schedules/controllable_memory.h"
#include "planner/pipeline/schedules/dual_pipe.h"
#include "planner/pipeline/schedules/interleaved.h"
#include "planner/pipeline/schedules/looped_bfs.h"
#include "planner/pipeline/schedules/window_order.h"
#include "planner/pipeline/schedules/zero_bubble.h"
#include "planner/pipeline/schedules/zero_bubble_v.h"
#include "planner/pipeline/testing/pipeline_vectors.h"
#include "planner/pipeline/timeline.h"

#include <algorithm>
#include <string>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/strip.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using Json = nlohmann::json;

constexpr double kTolerance = 1e-6;

absl::StatusOr<Schedule> MakeUnsplit(const PipelineVector& v, absl::string_view name) {
  const int32_t ranks = v.profile.ranks(), m = v.microbatches;
  const int32_t chunks = v.json["chunks_per_device"];
  if (name == "gpipe") return MakeGpipe(ranks, m);
  if (name == "1f1b") return MakeOneForwardOneBackward(ranks, m);
  if (name == "eager_1f1b") return MakeEagerOneForwardOneBackward(ranks, m);
  if (name == "window_1f1b") {
    return MakeWindowOrder(v.json["window"].get<std::vector<int32_t>>(), m);
  }
  if (name == "interleaved_1f1b") {
    return MakeInterleaved({.ranks = ranks, .chunks = chunks, .microbatches = m});
  }
  if (name == "looped_bfs") return MakeLoopedBreadthFirst(ranks, chunks, m);
  if (name == "zb_h1") return MakeZeroBubbleH1(ranks, m);
  if (name == "zb_h2") return MakeZeroBubbleH2(ranks, m);
  if (name == "zbv") return MakeZeroBubbleV(ranks, m);
  if (name == "v_min_unreordered") return MakeMemoryPattern(MemoryBlock::kMin, ranks, m);
  if (name == "v_half_unreordered") return MakeMemoryPattern(MemoryBlock::kHalf, ranks, m);
  if (name == "dualpipe_v") return MakeDualPipeV(ranks, m);
  return absl::NotFoundError(name);
}

absl::StatusOr<Schedule> MakeOf(const PipelineVector& v) {
  absl::string_view name = v.schedule;
  const bool is_split = absl::ConsumeSuffix(&name, "_split");
  absl::StatusOr<Schedule> schedule = MakeUnsplit(v, name);
  if (schedule.ok() && is_split) return DelayWeightGradients(*schedule);
  return schedule;
}

std::vector<double> Peaks(const Schedule& schedule, PipelineProfile profile, OpKind released_by) {
  for (StageProfile& stage : profile.stages) {
    const bool is_at_input = released_by == OpKind::kInputGradient;
    stage.input_gradient_bytes = ByteCount(is_at_input ? 1 : 0);
    stage.weight_gradient_bytes = ByteCount(is_at_input ? 0 : 1);
  }
  const absl::StatusOr<OpTable> ops = OpTable::Create(schedule, profile);
  EXPECT_OK(ops);
  std::vector<double> peaks;
  for (const RankMemory& memory : PeakMemory(*ops)) {
    peaks.push_back(static_cast<double>(memory.activation_bytes.value()));
  }
  return peaks;
}

double LargestWork(const OpTable& ops) {
  std::vector<double> work(ops.profile().ranks(), 0);
  for (OpIndex i = 0; i < ops.size(); ++i) {
    work[ops.rank_of(i)] += ops.profile().SecondsOf(ops.op(i));
  }
  return *std::ranges::max_element(work);
}

TEST(VectorsTest, ThereAre58Vectors) { EXPECT_EQ(PipelineVectors().size(), 58u); }

TEST(VectorsTest, OrdersAreThoseOfTheVectors) {
  int checked = 0;
  for (const PipelineVector& v : PipelineVectors()) {
    if (!v.json.contains("order")) continue;
    ++checked;
    SCOPED_TRACE(v.id);
    ASSERT_OK_AND_ASSIGN(const Schedule schedule, MakeOf(v));
    EXPECT_EQ(ToString(schedule), OrderOf(v));
  }
  EXPECT_EQ(checked, 16);
}

TEST(VectorsTest, TimesAndPeaksAreThoseOfTheVectors) {
  int closed_forms = 0;
  for (const PipelineVector& v : PipelineVectors()) {
    SCOPED_TRACE(v.id);
    ASSERT_OK_AND_ASSIGN(const Schedule schedule, MakeOf(v));
    EXPECT_OK(ProvePipeline(schedule, v.profile));
    ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, v.profile));
    ASSERT_OK_AND_ASSIGN(const PipelineTimeline run, SimulatePipeline(ops, v.model));
    const Json& expect = v.json["expect"];
    EXPECT_NEAR(run.seconds, expect["iteration_time"], kTolerance);
    EXPECT_NEAR(run.span_seconds, expect["max_device_span"], kTolerance);
    EXPECT_NEAR(BubbleRatio(ops, run), expect["bubble_ratio"], kTolerance);
    EXPECT_NEAR(1 - LargestWork(ops) / run.span_seconds, expect["bubble_ratio_span"], kTolerance);
    EXPECT_EQ(Json(Peaks(schedule, v.profile, OpKind::kWeightGradient)), expect["peak_in_flight"]);
    EXPECT_EQ(Json(Peaks(schedule, v.profile, OpKind::kInputGradient)),
              expect["peak_in_flight_release_at_I"]);
    if (!v.json.contains("closed_form_time")) continue;
    ++closed_forms;
    EXPECT_NEAR(run.seconds, v.json["closed_form_time"], kTolerance);
  }
  EXPECT_EQ(closed_forms, 21);
}

// The gains that arXiv 2211.05322 reports are those of overlap at the ratios of transfers to
// computation that its cases have.
TEST(VectorsTest, GainsAreThoseOfThePaper) {
  const Json& cases = PipelineCases("paper_2211_05322_cases");
  ASSERT_EQ(cases.size(), 13u);
  for (const Json& json : cases) {
    SCOPED_TRACE(json.dump());
    const int32_t stages = json["stages"], m = json["microbatches"];
    const double part = json["x=(cF+cB)/(tF+tB)"];
    const PipelineProfile profile = UniformProfile(stages, 1, part * 3 / 2);
    const absl::StatusOr<Schedule> plain = MakeOneForwardOneBackward(stages, m);
    const absl::StatusOr<Schedule> eager = MakeEagerOneForwardOneBackward(stages, m);
    const double blocking = RunOf(plain, profile, TransferModel::kBlocking).seconds;
    EXPECT_NEAR(blocking, json["blocking_1f1b"], kTolerance);
    const auto gain = [&](const absl::StatusOr<Schedule>& schedule) {
      return blocking / RunOf(schedule, profile, TransferModel::kLink).seconds;
    };
    constexpr double kDigits = 0.5e-4 + 1e-9;
    EXPECT_NEAR(gain(plain), json["speedup_1f1b_overlap"], kDigits);
    EXPECT_NEAR(gain(DelayWeightGradients(*plain)), json["speedup_1f1b_overlap_wdelay"], kDigits);
    EXPECT_NEAR(gain(eager), json["speedup_eager"], kDigits);
    EXPECT_NEAR(gain(DelayWeightGradients(*eager)), json["speedup_eager_wdelay"], kDigits);
    const PipelineProfile free = UniformProfile(stages, 1, 0);
    EXPECT_NEAR(blocking / RunOf(plain, free).seconds, json["speedup_no_comm"], kDigits);
  }
}

}  // namespace
}  // namespace crossmesh
