#include "planner/parallelism/step_model.h"

#include "common/testing/status_matchers.h"
#include "planner/parallelism/cluster_tables.h"
#include "planner/parallelism/grid_ranking.h"
#include "planner/parallelism/pipeline_law.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

constexpr PublishedCluster kNodes{
    .name = "", .devices_per_node = 4, .intra = 200, .inter = 100, .rows = {}};

DeviceProfile Device() { return *FindDevicePreset("a100"); }

StepModel PricedModel(const Training& training, int64_t devices,
                      const DeviceProfile& device = Device()) {
  Transformer model = PlainTransformer("", 8, 2048, 32);
  model.vocabulary = 32000;
  return *StepModel::Create(model, training, device, *RatesOfCluster(kNodes, devices));
}

Training PricedTraining(int64_t batch) { return {.batch = batch, .sequence = 1024}; }

StepPrice PriceOf(const Training& training, const char* grid,
                  const DeviceProfile& device = Device()) {
  const Grid parsed = *ParseGrid(grid);
  const StepModel step = PricedModel(training, parsed.devices(), device);
  return step.Price(ShapeOf(step.model(), training, parsed, training.microbatch));
}

TEST(StepModelTest, OneDeviceTakesItsProductsAtTheirRate) {
  Training training = PricedTraining(8);
  training.microbatch = 8;
  const StepPrice price = PriceOf(training, "c=1");
  EXPECT_EQ(price.communication_seconds(), 0);
  EXPECT_EQ(price.bubble_seconds, 0);
  // 6 P m operations, and attention's: between the peak and three times as long.
  const double flops = 6.0 * 8 * 12 * 2048 * 2048 * 8192;
  EXPECT_GT(price.compute_seconds, flops / 312e12);
  EXPECT_LT(price.compute_seconds, 3 * flops / 312e12);
  training.recompute = Recompute::kFull;
  EXPECT_NEAR(PriceOf(training, "c=1").compute_seconds, price.compute_seconds * 4 / 3, 1e-12);
}

TEST(StepModelTest, ComputingIsCutByEveryAxisButAttentionNotByC) {
  Training training = PricedTraining(16);
  training.microbatch = 1;
  DeviceProfile large = Device();
  large.half_size = 0;
  const double whole = PriceOf(training, "c=1", large).compute_seconds;
  for (const char* grid : {"r=2", "z=2", "data=2", "context=2", "pipeline=2"}) {
    const double half = PriceOf(training, grid, large).compute_seconds;
    // Residuals are not cut by r.
    EXPECT_GE(half, 0.499 * whole) << grid;
    EXPECT_LE(half, 0.62 * whole) << grid;
  }
  EXPECT_GT(PriceOf(training, "c=4", large).compute_seconds,
            PriceOf(training, "z=4", large).compute_seconds);
}

TEST(StepModelTest, OverlapsSaveTimeAndCostSomeComputing) {
  for (const char* grid : {"z=8", "r=2,z=4", "c=2,r=2,z=2", "r=4,z=2,data=2", "z=2,pipeline=4"}) {
    Training training = PricedTraining(64);
    training.microbatch = 1;
    training.overlaps = kNoOverlaps;
    const StepPrice off = PriceOf(training, grid);
    training.overlaps = {true, true, true, true, true};
    const StepPrice on = PriceOf(training, grid);
    EXPECT_LT(on.seconds(), off.seconds()) << grid;
    EXPECT_GT(on.slowdown_seconds, 0) << grid;
    EXPECT_EQ(off.slowdown_seconds, 0) << grid;
    // The same collectives, wherever their time goes; what a pipeline hides follows from both.
    for (const GridAxis axis : {GridAxis::kC, GridAxis::kR, GridAxis::kZ, GridAxis::kData}) {
      EXPECT_NEAR(on.exposed_seconds[axis] + on.hidden_seconds[axis],
                  off.exposed_seconds[axis] + off.hidden_seconds[axis],
                  1e-12 + 1e-9 * off.exposed_seconds[axis])
          << grid;
      EXPECT_EQ(on.wire_bytes[axis], off.wire_bytes[axis]);
    }
    DeviceProfile free = Device();
    free.overlap_slowdown = 1;
    EXPECT_LT(PriceOf(training, grid, free).seconds(), on.seconds());
  }
}

TEST(StepModelTest, TheFirstGatherOfAMicrobatchShows) {
  Training training = PricedTraining(2);
  training.microbatch = 1;
  // So fast that all others hide.
  const PublishedCluster flat{
      .name = "", .devices_per_node = 1 << 20, .unit = 1, .intra = 1e13, .rows = {}};
  const StepModel step = *StepModel::Create(PlainTransformer("", 8, 2048, 32), training, Device(),
                                            *RatesOfCluster(flat, 2));
  const GridShape shape = ShapeOf(step.model(), training, *ParseGrid("z=2"), 1);
  std::vector<double> seconds;
  double exposed = 0;
  for (const CollectiveUse& use : step.Collectives(shape)) {
    if (use.pass != "forward") continue;
    seconds.push_back(use.seconds);
    exposed += use.count * (use.seconds - use.hidden_seconds);
  }
  ASSERT_EQ(seconds.size(), 4);
  // And what the second one moves meanwhile: all of it, since it is smaller.
  ASSERT_LT(seconds[1], seconds[0]);
  EXPECT_NEAR(exposed, static_cast<double>(shape.microbatches) * (seconds[0] + seconds[1]), 1e-12);
}

TEST(StepModelTest, CollectivesAddUpToThePrice) {
  for (const char* text :
       {"c=2,r=2,z=2,data=2", "r=4,context=2,data=2", "z=4,pipeline=2,data=2", "r=2,data=8"}) {
    for (const int zero : {0, 1, 3}) {
      Training training = PricedTraining(64);
      training.microbatch = 2;
      training.zero = zero;
      const Grid grid = *ParseGrid(text);
      const StepModel step = PricedModel(training, grid.devices());
      const GridShape shape = ShapeOf(step.model(), training, grid, 2);
      PerAxis<double> seconds;
      PerAxis<double> bytes;
      for (const CollectiveUse& use : step.Collectives(shape)) {
        seconds[use.axis] += use.count * use.seconds;
        bytes[use.axis] += use.count * WireBytes(use.op, grid[use.axis], use.message_bytes);
      }
      const StepPrice price = step.Price(shape);
      for (const GridAxis axis : kGridAxes) {
        EXPECT_NEAR(price.wire_bytes[axis], bytes[axis], 1e-9 * bytes[axis]);
        if (axis == GridAxis::kPipeline) continue;
        EXPECT_NEAR(price.exposed_seconds[axis] + price.hidden_seconds[axis], seconds[axis],
                    1e-9 * seconds[axis])
            << text << " " << GridAxisName(axis);
      }
    }
  }
}

TEST(StepModelTest, APipelinesStepIsItsLaw) {
  Training training = PricedTraining(64);
  training.microbatch = 4;
  training.overlaps = kNoOverlaps;
  const StepPrice whole = PriceOf(training, "c=1");
  const StepPrice cut = PriceOf(training, "pipeline=4");
  // Four stages of equal blocks: three microbatches' work is waited for.
  EXPECT_NEAR(cut.compute_seconds, whole.compute_seconds / 4, 1e-12);
  EXPECT_NEAR(cut.bubble_seconds, cut.compute_seconds * 3 / 16, 1e-9);
  EXPECT_NEAR(cut.logits_seconds, whole.logits_seconds, 1e-12);
  EXPECT_GT(cut.exposed_seconds[GridAxis::kPipeline], 0);
  training.schedule = GridSchedule::kZbH1;
  EXPECT_LT(PriceOf(training, "pipeline=4").bubble_seconds, 0.7 * cut.bubble_seconds);
  training.schedule = GridSchedule::kInterleaved;
  training.chunks = 2;
  EXPECT_NEAR(PriceOf(training, "pipeline=4").bubble_seconds, cut.bubble_seconds / 2, 1e-9);
}

TEST(StepModelTest, TheBusiestDevicesTokensAreMultiplied) {
  Transformer model = PlainTransformer("", 4, 1024, 16);
  model.experts = 8;
  model.experts_per_token = 2;
  Training training = PricedTraining(8);
  const auto rows = [&](int matrix) {
    const GridShape shape = ShapeOf(model, training, *ParseGrid("expert=4"), 2);
    return SizeOf(model, training, shape, matrix).m;
  };
  const double even = rows(kFirstExpertMatrix);
  const double dense = rows(0);
  training.expert_imbalance = 1.25;
  EXPECT_EQ(rows(kFirstExpertMatrix), 1.25 * even);
  EXPECT_EQ(rows(0), dense);
}

// Forward and backward, a microbatch of a device at a time.
TEST(StepModelTest, EveryChunkHandsItsActivationsOn) {
  Training training = PricedTraining(64);
  training.microbatch = 4;
  const double one = 2 * 16 * 4 * 1024 * 2048.0 * 2;
  EXPECT_EQ(PriceOf(training, "pipeline=4").wire_bytes[GridAxis::kPipeline], one);
  training.schedule = GridSchedule::kInterleaved;
  training.chunks = 2;
  EXPECT_EQ(PriceOf(training, "pipeline=4").wire_bytes[GridAxis::kPipeline], 2 * one);
}

TEST(StepModelTest, WhatIsOutOfRangeIsNamed) {
  const PositionRates rates = *RatesOfCluster(kNodes, 2);
  const Transformer model = PlainTransformer("gpt", 2, 64, 4);
  const auto refuse = [&](const Transformer& m, const Training& t, const DeviceProfile& d,
                          const char* error) {
    EXPECT_THAT(StepModel::Create(m, t, d, rates).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(error)));
  };
  Transformer headless = model;
  headless.heads = 0;
  refuse(headless, PricedTraining(1), Device(), "model gpt: heads: expected 1 to");
  refuse(model, PricedTraining(0), Device(), "batch: expected 1 to");
  Training training = PricedTraining(1);
  training.zero = 4;
  refuse(model, training, Device(), "zero: expected 0 to 3, found 4");
  training = PricedTraining(1);
  training.chunks = 2;
  refuse(model, training, Device(), "chunks: expected more than 1 with schedule interleaved_1f1b");
  DeviceProfile device = Device();
  device.overlap_slowdown = 0.5;
  refuse(model, PricedTraining(1), device, "device a100: overlap slow-down: expected 1 to");
  device.overlap_slowdown = std::numeric_limits<double>::quiet_NaN();
  refuse(model, PricedTraining(1), device, "overlap slow-down");
  EXPECT_THAT(FindDevicePreset("tpu"), StatusIs(absl::StatusCode::kInvalidArgument,
                                                HasSubstr("expected one of a100, gh200")));
  EXPECT_THAT(FindCluster("mars"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("perlmutter_measured")));
  for (const absl::Status& status :
       {ParseRecompute("half").status(), ParseContextMethod("half").status(),
        ParseGridSchedule("half").status(), ParseActivationForm("half").status()}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found \"half\"")));
  }
}

TEST(StepModelTest, ATableWithoutARowIsFilledByTheLawAndSaysSo) {
  const PublishedCluster& cluster = **FindCluster("perlmutter_measured");
  const PositionRates rates = *RatesOfCluster(cluster, 12);
  EXPECT_EQ(rates.At(2, 2).source(), RateSource::kTable);
  EXPECT_EQ(rates.At(2, 3).source(), RateSource::kTheory);
  EXPECT_NEAR(rates.At(2, 3).bytes_per_second(), 40 * kGiB, 1);
  // Where the row has the same rate for groups of 2 and of 4, too.
  EXPECT_EQ(rates.At(4, 3).source(), RateSource::kTheory);
}

}  // namespace
}  // namespace crossmesh
