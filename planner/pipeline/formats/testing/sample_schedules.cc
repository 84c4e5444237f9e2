#include "planner/pipeline/formats/testing/sample_schedules.h"

#include "common/testing/status_matchers.h"
#include "planner/pipeline/formats/placed_ops.h"
#include "planner/pipeline/schedules/controllable_memory.h"
#include "planner/pipeline/schedules/dual_pipe.h"
#include "planner/pipeline/schedules/interleaved.h"
#include "planner/pipeline/schedules/looped_bfs.h"
#include "planner/pipeline/schedules/sequence_split.h"
#include "planner/pipeline/schedules/window_order.h"
#include "planner/pipeline/schedules/zero_bubble.h"
#include "planner/pipeline/schedules/zero_bubble_v.h"
#include "planner/pipeline/testing/random_pipeline.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// The two chains of DualPipe.
std::vector<PipelineShape::Edge> BothChains(int32_t stages) {
  std::vector<PipelineShape::Edge> edges = ChainOf(stages);
  edges.erase(edges.begin() + stages / 2 - 1);
  return edges;
}

}  // namespace

std::vector<SampleSchedule> SampleSchedules(RandomSource& random) {
  const auto s = static_cast<int32_t>(random.Between(1, 5));
  const auto m = static_cast<int32_t>(random.Between(1, 9));
  const auto v = static_cast<int32_t>(random.Between(1, 3));
  std::vector<int32_t> windows;
  for (StageIndex stage = 0; stage < s; ++stage) {
    windows.push_back(static_cast<int32_t>(random.Between(s - stage, 2 * s)));
  }
  // Stages that hold more than the one before them would wait for it for ever.
  std::ranges::sort(windows, std::ranges::greater());
  std::vector<SampleSchedule> samples;
  const auto add = [&](std::string name, const absl::StatusOr<Schedule>& made) {
    ASSERT_OK(made) << name;
    const bool both_ways = name == "dual_pipe";
    const PipelineShape shape = {
        .stage_ranks = StageRanks(*made),
        .edges = both_ways ? BothChains(made->stages) : ChainOf(made->stages)};
    samples.push_back({name, shape, *made});
    const Schedule delayed = DelayWeightGradients(*made);
    if (delayed != *made) samples.push_back({name + " delayed", shape, delayed});
  };
  add("gpipe", MakeGpipe(s, m));
  add("1f1b", MakeOneForwardOneBackward(s, m));
  add("eager_1f1b", MakeEagerOneForwardOneBackward(s, m));
  add("window", MakeWindowOrder(windows, m));
  add("interleaved", MakeInterleaved({.ranks = s, .chunks = v, .microbatches = s * m}));
  add("looped_bfs", MakeLoopedBreadthFirst(s, v, m));
  add("zb_h1", MakeZeroBubbleH1(s, m));
  add("zb_h2", MakeZeroBubbleH2(s, m));
  add("zb_v", MakeZeroBubbleV(s, m));
  add("v_half", MakeControllableMemory(MemoryBlock::kHalf, s, m));
  add("v_min", MakeControllableMemory(MemoryBlock::kMin, s, m));
  add("dual_pipe", MakeDualPipe(2 * v, 4 * v + 2 * m));
  add("dual_pipe_v", MakeDualPipeV(s, 2 * s + m));
  add("sequence_split", MakeSequenceSplit(s, m, v));
  const PipelineProfile profile = RandomProfile(random);
  const BackwardForm form = random.OneIn(2) ? BackwardForm::kFull : BackwardForm::kSplit;
  samples.push_back(
      {"random", ShapeOf(profile), RandomSchedule(random, profile, m, form, random.OneIn(2))});
  return samples;
}

}  // namespace crossmesh
