#include "planner/layers/layer_exposures.h"

#include "common/plan/testing/for_each_seed.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <absl/container/inlined_vector.h>
#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// A sum of 2 s that 1.5 s of the next layer hide, and one of 1 s that nothing does. Both belong to
// the layer that gives them, though the next one waits.
TEST(LayerExposuresTest, AMessageBelongsToTheLayerWhoseOpGivesIt) {
  LayerProgram program{.ranks = std::vector<LayerProgram::Rank>(1)};
  program.ops = {{.name = "a", .seconds = 1, .layer = "layer0"},
                 {.name = "b", .seconds = 1.5, .layer = "layer1"},
                 {.name = "c", .seconds = 1, .layer = "layer1"},
                 {.name = "d"}};
  program.transfers = {{.name = "sum", .messages = {{0, 2}}},
                       {.name = "last", .messages = {{2, 3}}}};
  const std::vector<absl::InlinedVector<PortIndex, 2>> no_ports(2);
  const LayerTimeline run =
      SimulateLayers(program, {.seconds = {2, 1}, .ports = TransferPorts(no_ports)});
  const std::vector<LayerExposure> layers = ExposuresByLayer(program, run);
  ASSERT_EQ(layers.size(), 3);
  EXPECT_EQ(layers[0].name, "layer0");
  EXPECT_DOUBLE_EQ(layers[0].op_seconds, 1);
  EXPECT_DOUBLE_EQ(layers[0].messages.exposed, 0.5);
  EXPECT_DOUBLE_EQ(layers[0].messages.hidden, 1.5);
  EXPECT_EQ(layers[1].name, "layer1");
  EXPECT_DOUBLE_EQ(layers[1].op_seconds, 2.5);
  EXPECT_DOUBLE_EQ(layers[1].messages.exposed, 1);
  EXPECT_DOUBLE_EQ(layers[1].messages.hidden, 0);
  EXPECT_EQ(layers[2].name, "");
  EXPECT_DOUBLE_EQ(layers[2].op_seconds, 0);
  EXPECT_DOUBLE_EQ(layers[2].messages.exposed, 0);
}

// On one rank whatever is exposed is a wait of some op; so layers sum up to what transfers are, and
// to what the rank does not compute.
TEST(LayerExposuresTest, LayersTogetherAreWhatTransfersAreAndWhatTheRankWaits) {
  int64_t of_several = 0;
  ForEachSeed(200, [&](RandomSource& random) {
    LayerProgram program{.ranks = std::vector<LayerProgram::Rank>(1)};
    const int32_t count = 4 + random.Below(30);
    for (int32_t op = 0; op < count; ++op) {
      program.ops.push_back({.name = absl::StrCat(op),
                             .seconds = static_cast<double>(random.Below(5)),
                             .layer = absl::StrCat("layer", random.Below(4))});
    }
    std::vector<double> seconds;
    std::vector<absl::InlinedVector<PortIndex, 2>> ports;
    for (int32_t begin = 0; begin + 1 < count; ++begin) {
      if (random.Below(2) == 0) continue;
      const auto end = static_cast<int32_t>(begin + 1 + random.Below(count - begin - 1));
      program.transfers.push_back({.name = absl::StrCat(begin), .messages = {{begin, end}}});
      seconds.push_back(static_cast<double>(1 + random.Below(4)));
      ports.push_back({static_cast<PortIndex>(random.Below(2))});
    }
    const LayerTimeline run =
        SimulateLayers(program, {.seconds = seconds, .ports = TransferPorts(ports)});
    LayerExposure all;
    const std::vector<LayerExposure> layers = ExposuresByLayer(program, run);
    for (const LayerExposure& layer : layers) {
      all.op_seconds += layer.op_seconds;
      all.messages.exposed += layer.messages.exposed;
      all.messages.hidden += layer.messages.hidden;
    }
    double exposed = 0;
    double hidden = 0;
    for (const LayerTimeline::Exposure& of_transfer : run.exposures) {
      exposed += of_transfer.exposed;
      hidden += of_transfer.hidden;
    }
    EXPECT_NEAR(all.messages.exposed, exposed, 1e-9);
    EXPECT_NEAR(all.messages.hidden, hidden, 1e-9);
    EXPECT_NEAR(all.op_seconds + all.messages.exposed, run.seconds, 1e-9);
    const auto shows = [](const LayerExposure& layer) { return layer.messages.exposed > 0; };
    of_several += std::ranges::count_if(layers, shows) > 1 ? 1 : 0;
  });
  EXPECT_GT(of_several, 20);
}

}  // namespace
}  // namespace crossmesh
