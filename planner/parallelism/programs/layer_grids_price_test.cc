#include "planner/parallelism/programs/layer_grids_price.h"

#include "planner/layers/planned_layers.h"
#include "planner/parallelism/grid_ranking.h"
#include "planner/parallelism/network_rates.h"
#include "planner/parallelism/programs/grid_program.h"

#include <cstdint>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StrEq;

constexpr char kHosts[] = "a.0,b.0,c.0,d.0,e.0,f.0,g.0,h.0";

StepModel PricedModel(const Training& training, Transformer model) {
  return *StepModel::Create(std::move(model), training, *FindDevicePreset("a100"),
                            *RatesOfNetwork(*ParseDevices(kHosts), Topology()));
}

Transformer PricedTransformer() {
  Transformer model = PlainTransformer("priced", 4, 1024, 16);
  model.vocabulary = 4096;
  return model;
}

// A grid that is said part by part is what StepModel prices, term by term.
TEST(LayerGridsPriceTest, OneGridHasThePriceOfTheGrid) {
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  int priced = 0;
  for (int attempt = 0; attempt < 60; ++attempt) {
    Grid grid;
    for (int factor = 0; factor < 3; ++factor) {
      constexpr GridAxis kAxes[] = {GridAxis::kC, GridAxis::kR, GridAxis::kZ, GridAxis::kData};
      grid[kAxes[random() % 4]] *= 2;
    }
    Training training{.batch = 64, .sequence = 256, .keep_gathered = random() % 2 == 0};
    training.activations =
        random() % 2 == 0 ? ActivationForm::kReplicated : ActivationForm::kScattered;
    training.cached_layers = static_cast<int64_t>(random() % 5);
    training.overlaps = {random() % 2 == 0, random() % 2 == 0, random() % 2 == 0, random() % 2 == 0,
                         random() % 2 == 0};
    training.flash_attention = random() % 2 == 0;
    training.microbatch = int64_t{1} << random() % 3;
    Transformer model = PricedTransformer();
    model.tied = random() % 2 == 0;
    const StepModel step = PricedModel(training, model);
    const absl::StatusOr<RankedGrid> whole = PriceGrid(step, grid);
    const absl::StatusOr<LayerGridsPrice> parts = PriceLayerGrids(
        step,
        *ParseLayerGrids(absl::StrCat(ToString(grid), "+", ToString(grid), "@attention+",
                                      ToString(grid), "@0-3.mlp+", ToString(grid), "@logits")));
    ASSERT_EQ(parts.ok(), whole.ok()) << grid << parts.status() << whole.status();
    if (!whole.ok()) continue;
    const std::string what = absl::StrCat(ToString(grid), " of ", training.microbatch);
    EXPECT_THAT(parts->joints, IsEmpty());
    EXPECT_NEAR(parts->seconds() / whole->seconds, 1, 1e-12) << what;
    EXPECT_NEAR(parts->memory_bytes() / whole->memory_bytes, 1, 1e-12) << what;
    for (const GridAxis axis : kGridAxes) {
      EXPECT_NEAR(parts->step.wire_bytes[axis], whole->price.wire_bytes[axis],
                  1e-9 * whole->price.wire_bytes[axis] + 1e-9);
      EXPECT_NEAR(parts->step.hidden_seconds[axis], whole->price.hidden_seconds[axis], 1e-12);
    }
    ++priced;
  }
  EXPECT_GT(priced, 20);
}

TEST(LayerGridsPriceTest, JointsAreNamedByTheirLayer) {
  const StepModel step =
      PricedModel({.batch = 64, .sequence = 256, .microbatch = 32}, PricedTransformer());
  const LayerGridsPrice price = *PriceLayerGrids(step, *ParseLayerGrids("r=8+z=8@1-2.mlp"));
  ASSERT_EQ(price.joints.size(), 4U);
  EXPECT_EQ(ToString(price.joints[0].place), "layer1.mlp");
  EXPECT_EQ(ToString(price.joints[1].place), "layer2.attention");
  EXPECT_EQ(ToString(price.joints[3].place), "layer3.attention");
  EXPECT_EQ(price.joints[0].messages, 2);
  // Copies become rows, and rows copies.
  EXPECT_THAT(price.joints[0].forward.steps, ElementsAre("slice"));
  EXPECT_EQ(price.joints[0].forward.bytes, 0);
  EXPECT_THAT(price.joints[0].backward.steps, Each(StrEq("all_gather")));
  EXPECT_EQ(price.joints[1].forward.seconds, price.joints[0].backward.seconds);
  EXPECT_GT(price.joint_seconds(), 0);
  // Both ends of a message forward and of one back, of joints to rows and of those to copies.
  const double copies = 64 * 256 / 2 * 1024 * 2.0;
  EXPECT_EQ(price.joint_bytes, 2 * 2 * (copies + copies / 8));
  EXPECT_DOUBLE_EQ(price.seconds(), price.step.seconds() + price.joint_seconds());
}

// So slow that nothing is hidden whole: of each layer's attention the first matrix is gathered
// beside the second one on the same grid, and the second one beside the MLP's first one on another.
TEST(LayerGridsPriceTest, GathersOnTheWayBackHideBehindTheGridAfterTheJoint) {
  Training training{.batch = 64, .sequence = 256, .microbatch = 8, .overlaps = kNoOverlaps};
  training.overlaps.backward_gathers = true;
  std::vector<MeasuredPosition> positions;
  for (const AxisPosition& position : PositionRates::PositionsOf(8)) {
    positions.push_back({.position = position, .bytes_per_second = 1e6});
  }
  const StepModel step =
      *StepModel::Create(PricedTransformer(), training, *FindDevicePreset("a100"),
                         *RatesOfNetwork(*ParseDevices(kHosts), Topology(), positions));
  const LayerGridsPrice price = *PriceLayerGrids(step, *ParseLayerGrids("z=8+r=8@mlp"));
  const auto work_on = [&](int grid) {
    return WorkOfBlock(step.model(), training, step.device(), price.shapes[grid]);
  };
  const double hidden = work_on(0).BackwardSegment(1) + work_on(1).BackwardSegment(2);
  EXPECT_GT(work_on(1).BackwardSegment(2), 1.1 * work_on(0).BackwardSegment(2));
  EXPECT_NEAR(price.step.hidden_seconds[GridAxis::kZ], 4 * hidden, 1e-9);
}

// The model's joints move what the program's plans move, and take as long.
TEST(LayerGridsPriceTest, JointsTakeWhatTheirPlansTake) {
  for (const char* text : {"r=8+z=8@mlp", "c=8+z=8@mlp", "c=2,r=4+r=2,z=4@mlp",
                           "c=2,r=2,z=2+r=4,z=2@mlp", "r=2,z=4+c=4,z=2@mlp"}) {
    SCOPED_TRACE(text);
    Training training{.batch = 64, .sequence = 2048, .microbatch = 0, .keep_gathered = true};
    const LayerGrids grids = *ParseLayerGrids(text);
    training.microbatch = training.batch / grids.grid.sample_groups();
    const StepModel step = PricedModel(training, PricedTransformer());
    const LayerGridsPrice price = *PriceLayerGrids(step, grids);
    GridProgramRequest request{
        .model = step.model(), .training = training, .device = step.device()};
    request.stages.push_back({.grid = grids.grid,
                              .mesh = std::make_shared<const Mesh>(
                                  *MeshOfGrids(price.parts.grids, *ParseDevices(kHosts))),
                              .layers = step.model().layers,
                              .others = grids.others});
    const auto planned = PlanLayers(*MakeGridProgram(request), Topology());
    ASSERT_EQ(planned.status(), absl::OkStatus());
    for (size_t i = 0; i < (*planned)->transfers.size(); ++i) {
      const std::string& name = (*planned)->program.transfers[i].name;
      const JointMove* move = nullptr;
      if (name == "grid0.grid1.activations") move = &price.joints[0].forward;
      if (name == "grid1.grid0.gradients") move = &price.joints[0].backward;
      if (move == nullptr) continue;
      const double seconds = (*planned)->transfers[i].seconds();
      EXPECT_NEAR(move->seconds, seconds, 0.05 * seconds + 1e-4) << name;
    }
  }
}

// As described, but steps and messages take no time to begin: of these, a simulated program knows
// nothing. With them a step of small messages takes a tenth longer.
PositionRates RatesOfBytesAlone(const std::vector<DeviceId>& devices) {
  const PositionRates described = *RatesOfNetwork(devices, Topology());
  std::vector<MeasuredPosition> positions;
  for (const AxisPosition& position : PositionRates::PositionsOf(std::ssize(devices))) {
    const AxisRate& rate = described.At(position.inner, position.own);
    positions.push_back({.position = position, .bytes_per_second = rate.bytes_per_second()});
  }
  return *RatesOfNetwork(devices, Topology(), positions);
}

// Of the same step without overlaps: what the cost model says over what its program takes.
double ModelOverProgram(const char* text, const std::vector<DeviceId>& devices) {
  Training training{.batch = 64, .sequence = 2048, .keep_gathered = true};
  training.overlaps = kNoOverlaps;
  const LayerGrids grids = *ParseLayerGrids(text);
  training.microbatch = training.batch / grids.grid.sample_groups();
  DeviceProfile device = *FindDevicePreset("a100");
  device.overlap_slowdown = 1;
  const StepModel step =
      *StepModel::Create(PricedTransformer(), training, device, RatesOfBytesAlone(devices));
  const LayerGridsPrice price = *PriceLayerGrids(step, grids);
  GridProgramRequest request{.model = step.model(), .training = training, .device = device};
  request.stages.push_back(
      {.grid = grids.grid,
       .mesh = std::make_shared<const Mesh>(*MeshOfGrids(price.parts.grids, devices)),
       .layers = step.model().layers,
       .others = grids.others});
  const auto planned = PlanLayers(*MakeGridProgram(request), Topology());
  EXPECT_EQ(planned.status(), absl::OkStatus());
  return planned.ok() ? price.seconds() / (*planned)->run.seconds : 0;
}

// Cost model and simulated program know each other's joints and gathers.
TEST(LayerGridsPriceTest, AStepTakesWhatItsProgramTakes) {
  for (const char* text : {"r=8+z=8@mlp", "c=2,r=4+r=2,z=4@mlp", "r=2,z=4+z=8@1-2",
                           "z=8+r=2,z=4@attention+c=8@logits"}) {
    EXPECT_NEAR(ModelOverProgram(text, *ParseDevices(kHosts)), 1, 0.01) << text;
  }
}

// And what moves inside hosts.
TEST(LayerGridsPriceTest, InsideHostsAStepTakesWhatItsProgramTakesToo) {
  constexpr char kOneHost[] = "a.0-7";
  for (const char* const hosts : {kOneHost, "a.0-3,b.0-3"}) {
    for (const char* text : {"r=8", "z=8", "r=2,z=4", "c=2,r=2,z=2", "r=8+z=8@mlp",
                             "c=2,r=4+r=2,z=4@mlp", "r=2,z=4+z=8@1-2"}) {
      const double ratio = ModelOverProgram(text, *ParseDevices(hosts));
      // A gather over both levels is one move, in which they go side by side. The cost model has
      // one after the other: 11 % more on z=8.
      EXPECT_LE(ratio, hosts == kOneHost ? 1.01 : 1.12) << text << " on " << hosts;
      EXPECT_GE(ratio, 0.98) << text << " on " << hosts;
    }
  }
}

TEST(LayerGridsPriceTest, WhatCannotBeIsNamed) {
  const auto refusal = [](const Training& training, const char* text) {
    const absl::Status status =
        PriceLayerGrids(PricedModel(training, PricedTransformer()), *ParseLayerGrids(text))
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  const Training plain{.batch = 64, .sequence = 256};
  EXPECT_THAT(refusal(plain, "r=4+z=4@mlp"), HasSubstr("expected 8 devices, found 4"));
  EXPECT_THAT(refusal(plain, "r=8+z=4@mlp"), HasSubstr("grid z=4@mlp: expected 8 devices"));
  EXPECT_THAT(refusal(plain, "r=8+z=8@9"), HasSubstr("expected layers of 0 to 3"));
  EXPECT_THAT(refusal(plain, "r=8+pipeline=8@mlp"), HasSubstr("found pipeline=8"));
  EXPECT_THAT(refusal({.batch = 64, .sequence = 256, .zero = 1}, "r=8+z=8@mlp"),
              HasSubstr("expected no ZeRO"));
  EXPECT_THAT(refusal({.batch = 4, .sequence = 256}, "r=8+z=8@mlp"), HasSubstr("grid z=8"));
}

// Of attention and logits, which z alone cuts, and of the MLP, which r cuts too: each 4 h² elements
// of a device's group, whole and shard, for both ways.
TEST(LayerGridsPriceTest, GatheredMatricesOfAllGridsCount) {
  const StepModel step =
      PricedModel({.batch = 64, .sequence = 256, .microbatch = 8}, PricedTransformer());
  const LayerGridsPrice price = *PriceLayerGrids(step, *ParseLayerGrids("z=8+r=2,z=4@mlp"));
  EXPECT_EQ(price.memory.gathered, 2 * 2 * 4 * 1024 * 1024 * (1.125 + 1.125 + 1.25));
}

TEST(LayerGridsPriceTest, WhatDoesNotFitSaysWhatItNeeds) {
  DeviceProfile device = *FindDevicePreset("a100");
  device.memory_bytes = 1 << 20;
  const StepModel step =
      *StepModel::Create(PricedTransformer(), {.batch = 64, .sequence = 256}, device,
                         *RatesOfNetwork(*ParseDevices(kHosts), Topology()));
  const LayerGrids grids = *ParseLayerGrids("r=8+z=8@mlp");
  const absl::Status status = PriceLayerGrids(step, grids).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected at most 1048576 bytes"));
  // Over it there is what needs least: of the grid of rows one sequence at a time.
  const absl::StatusOr<LayerGridsPrice> over = PriceLayerGrids(step, grids, /*over_memory=*/true);
  ASSERT_EQ(over.status(), absl::OkStatus());
  EXPECT_EQ(over->shapes.back().microbatch, 1);
}

}  // namespace
}  // namespace crossmesh
