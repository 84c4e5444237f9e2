#include "client/drawing/pipeline_drawing.h"

#include "client/drawing/testing/svg_reader.h"
#include "common/plan/testing/random_source.h"
#include "planner/pipeline/schedules/one_f_one_b.h"

#include <memory>
#include <string>
#include <vector>

#include <absl/strings/match.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// A run with what it refers to.
struct Example {
  PipelineProfile profile;
  Schedule schedule;
  std::unique_ptr<const OpTable> ops;
  PipelineTimeline run;

  DrawnPipeline drawn(std::string title = "example") const {
    return {.title = std::move(title), .ops = ops.get(), .run = &run};
  }
};

std::unique_ptr<Example> RunOf(PipelineProfile profile, Schedule schedule) {
  auto made = std::make_unique<Example>(std::move(profile), std::move(schedule));
  made->ops = std::make_unique<const OpTable>(*OpTable::Create(made->schedule, made->profile));
  made->run = *SimulatePipeline(*made->ops, TransferModel::kLatency);
  return made;
}

PipelineProfile Chain(int32_t stages) {
  PipelineProfile profile;
  profile.rank_bytes_max.resize(stages);
  for (StageIndex s = 0; s < stages; ++s) {
    profile.stages.push_back({.rank = s,
                              .forward_seconds = 1,
                              .input_gradient_seconds = 1,
                              .weight_gradient_seconds = 1});
    if (s == 0) continue;
    profile.edges.push_back(
        {.from = s - 1, .to = s, .forward_seconds = 0.5, .backward_seconds = 0.5});
  }
  return profile;
}

std::unique_ptr<Example> OneForwardOneBackward(int32_t stages, int32_t microbatches) {
  return RunOf(Chain(stages), *MakeOneForwardOneBackward(stages, microbatches));
}

bool IsOp(const SvgElement& element) {
  const std::string name = element.attribute("class");
  return element.name == "path" && name.size() == 2 && absl::StrContains("FBIW", name.substr(0, 1));
}

std::vector<SvgBar> OpBars(const std::vector<SvgElement>& picture) {
  std::vector<SvgBar> bars;
  for (const SvgElement& element : picture) {
    if (!IsOp(element)) continue;
    for (const SvgBar& bar : ReadBars(element.attribute("d"))) bars.push_back(bar);
  }
  return bars;
}

int64_t Transfers(const std::vector<SvgElement>& picture) {
  int64_t lines = 0;
  for (const SvgElement& element : picture) {
    if (element.name != "path" || !absl::StartsWith(element.attribute("class"), "transfer"))
      continue;
    for (const char letter : element.attribute("d")) lines += letter == 'M' ? 1 : 0;
  }
  return lines;
}

int64_t PassingTransfers(const OpTable& ops) {
  int64_t count = 0;
  for (TransferIndex transfer = 0; transfer < ops.transfers(); ++transfer) {
    if (ops.Passes(transfer)) count += ops.schedule().microbatches;
  }
  return count;
}

TEST(PipelineDrawingTest, HasABoxForEachOpAndALineForEachTransfer) {
  RandomSource random(7);
  for (int round = 0; round < 100; ++round) {
    const auto stages = static_cast<int32_t>(random.Between(1, 6));
    PipelineProfile profile = Chain(stages);
    for (StageIndex from = 0; from + 2 < stages; ++from) {
      if (random.OneIn(2)) profile.edges.push_back({.from = from, .to = stages - 1});
    }
    Schedule schedule =
        *MakeOneForwardOneBackward(stages, static_cast<int32_t>(random.Between(1, 12)));
    if (random.OneIn(2)) schedule = DelayWeightGradients(schedule);
    const auto example = RunOf(std::move(profile), std::move(schedule));
    const auto picture = ReadSvg(DrawPipelines({example->drawn()}, DrawnTime::kAny));
    ASSERT_TRUE(picture.ok()) << picture.status() << ", round " << round;
    EXPECT_EQ(static_cast<int64_t>(OpBars(*picture).size()), example->ops->size());
    EXPECT_EQ(Transfers(*picture), PassingTransfers(*example->ops)) << "round " << round;
  }
}

TEST(PipelineDrawingTest, StaysInsideThePicture) {
  const auto first = OneForwardOneBackward(4, 8), second = OneForwardOneBackward(16, 32);
  const auto picture = ReadSvg(DrawPipelines({first->drawn(), second->drawn()}));
  ASSERT_TRUE(picture.ok()) << picture.status();
  const double width = picture->front().number("width"), height = picture->front().number("height");
  for (const SvgBar& bar : OpBars(*picture)) {
    EXPECT_GE(bar.x, 0);
    EXPECT_LE(bar.x + bar.width, width);
    EXPECT_LE(bar.y + bar.height, height);
  }
}

TEST(PipelineDrawingTest, WhatIsTooFineIsMergedAndSaidToBe) {
  const auto example = OneForwardOneBackward(64, 512);
  const std::string text = DrawPipelines({example->drawn()});
  EXPECT_LT(text.size(), size_t{3} << 20);
  EXPECT_THAT(text, testing::HasSubstr("Transfers are left out"));
  EXPECT_THAT(text, testing::HasSubstr("narrower than a pixel"));
  EXPECT_TRUE(ReadSvg(text).ok());
}

TEST(PipelineDrawingTest, MeasuredRowsStandBelowThePlannedOnes) {
  const auto example = OneForwardOneBackward(2, 4);
  DrawnPipeline both = example->drawn();
  both.measured = &example->run;
  const auto alone = ReadSvg(DrawPipelines({example->drawn()}));
  const auto beside = ReadSvg(DrawPipelines({both}));
  ASSERT_TRUE(alone.ok() && beside.ok());
  EXPECT_EQ(OpBars(*beside).size(), 2 * OpBars(*alone).size());
}

TEST(PipelineDrawingTest, SaysWhatAMicrobatchTakes) {
  const auto example = OneForwardOneBackward(2, 32);
  // Two stages: 3 of computation, and 2 x 0.5 of transfers for every two microbatches.
  EXPECT_THAT(DrawPipelines({example->drawn("1F1B")}, DrawnTime::kAny),
              testing::AllOf(testing::HasSubstr("1F1B: "), testing::HasSubstr(": 3.5 each")));
}

}  // namespace
}  // namespace crossmesh
