#include "planner/parallelism/programs/grid_program.h"
#include "planner/pipeline/schedules/window_order.h"
#include "planner/pipeline/schedules/zero_bubble.h"

#include <algorithm>
#include <cstdint>

#include <absl/strings/string_view.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

int64_t PlaceInOrder(const LayerProgram& program, absl::string_view op) {
  return std::ranges::find(program.ops, op, &LayerProgram::Op::name) - program.ops.begin();
}

double SecondsOfOps(const LayerProgram& program) {
  double seconds = 0;
  for (const LayerProgram::Op& op : program.ops) seconds += op.seconds;
  return seconds;
}

TEST(GridScheduleTest, GradientsOfWeightsComeWhenTheScheduleSays) {
  GridProgramRequest request{.model = PlainTransformer("small", 4, 64, 8),
                             .training = {.batch = 16, .sequence = 8},
                             .microbatches = 4,
                             .device = *FindDevicePreset("a100")};
  request.model.vocabulary = 128;
  request.stages =
      *StagesOfGrid(*ParseGrid("r=2,z=2,pipeline=2"), *ParseDevices("a.0-7"), request.model.layers);
  request.schedule = *MakeOneForwardOneBackward(2, 4);
  const LayerProgram whole = *MakeGridProgram(request);
  EXPECT_LT(PlaceInOrder(whole, "m0.layer2.qkv.weight_gradient"),
            PlaceInOrder(whole, "m0.leave_back"));
  request.schedule = *MakeZeroBubbleH1(2, 4);
  const LayerProgram split = *MakeGridProgram(request);
  EXPECT_GT(PlaceInOrder(split, "m0.layer2.qkv.weight_gradient"),
            PlaceInOrder(split, "m0.leave_back"));
  EXPECT_EQ(split.ops.size(), whole.ops.size());
  EXPECT_NEAR(SecondsOfOps(split), SecondsOfOps(whole), 1e-12);
  EXPECT_EQ(split.transfers.size(), whole.transfers.size());
}

}  // namespace
}  // namespace crossmesh
