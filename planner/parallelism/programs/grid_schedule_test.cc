#include "planner/parallelism/programs/grid_program.h"
#include "planner/pipeline/schedules/interleaved.h"
#include "planner/pipeline/schedules/window_order.h"
#include "planner/pipeline/schedules/zero_bubble.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <absl/strings/strip.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

int64_t PlaceInOrder(const LayerProgram& program, absl::string_view op) {
  return std::ranges::find(program.ops, op, &LayerProgram::Op::name) - program.ops.begin();
}

double SecondsOfOps(const LayerProgram& program) {
  double seconds = 0;
  for (const LayerProgram::Op& op : program.ops) seconds += op.seconds;
  return seconds;
}

// Of four layers, in four microbatches.
GridProgramRequest SmallTraining(const std::string& grid, const std::string& devices) {
  GridProgramRequest request{.model = PlainTransformer("small", 4, 64, 8),
                             .training = {.batch = 16, .sequence = 8},
                             .microbatches = 4,
                             .device = *FindDevicePreset("a100")};
  request.model.vocabulary = 128;
  request.stages = *StagesOfGrid(*ParseGrid(grid), *ParseDevices(devices), {.layers = 4});
  return request;
}

TEST(GridScheduleTest, GradientsOfWeightsComeWhenTheScheduleSays) {
  GridProgramRequest request = SmallTraining("r=2,z=2,pipeline=2", "a.0-7");
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

// Also where they come later, the last layer's come first, as a pass back has them.
TEST(GridScheduleTest, GradientsOfWeightsGoFromTheLastLayerToTheFirst) {
  GridProgramRequest request = SmallTraining("z=2,pipeline=2", "a.0-3");
  for (const bool deferred : {false, true}) {
    request.schedule = deferred ? *MakeZeroBubbleH1(2, 4) : *MakeOneForwardOneBackward(2, 4);
    const LayerProgram program = *MakeGridProgram(request);
    EXPECT_LT(PlaceInOrder(program, "m1.layer3.qkv.weight_gradient"),
              PlaceInOrder(program, "m1.layer2.mlp_out.weight_gradient"));
    EXPECT_LT(PlaceInOrder(program, "m1.layer2.mlp_out.weight_gradient"),
              PlaceInOrder(program, "m1.layer2.qkv.weight_gradient"));
  }
}

// Transposed layers have no sum over c here that their product could hide: its scatter goes early
// where it may wait.
TEST(GridScheduleTest, GradientsOfWeightsComeFirstWhereTheirScattersMayWait) {
  GridProgramRequest request = SmallTraining("r=2,z=2", "a.0-3");
  for (const bool may_wait : {true, false}) {
    request.training.overlaps.weight_gradients = may_wait;
    const LayerProgram program = *MakeGridProgram(request);
    EXPECT_EQ(PlaceInOrder(program, "m0.layer1.mlp_out.weight_gradient") <
                  PlaceInOrder(program, "m0.layer1.mlp_out.input_gradient"),
              may_wait);
  }
}

// The rows of an output's gradient are gathered for both products, on every grid: whatever is
// first of these, it is not there before the rows are.
TEST(GridScheduleTest, ProductsComeAfterTheRowsThatTheyNeed) {
  for (const char* grid : {"c=4", "r=4", "c=2,z=2", "r=2,z=2", "c=2,r=2"}) {
    GridProgramRequest request{.model = PlainTransformer("small", 4, 64, 8),
                               .training = {.batch = 16,
                                            .sequence = 8,
                                            .activations = ActivationForm::kScattered,
                                            .keep_gathered = true},
                               .device = *FindDevicePreset("a100")};
    request.model.vocabulary = 128;
    request.stages = *StagesOfGrid(*ParseGrid(grid), *ParseDevices("a.0-3"), {.layers = 4});
    const LayerProgram program = *MakeGridProgram(request);
    int64_t gathered = 0;
    for (const LayerProgram::Transfer& transfer : program.transfers) {
      const absl::string_view matrix = absl::StripSuffix(transfer.name, ".gradient_rows");
      if (matrix == transfer.name) continue;
      for (const LayerProgram::Message& message : transfer.messages) {
        const absl::string_view input =
            absl::StripSuffix(program.ops[message.consumer].name, ".input_gradient");
        EXPECT_LT(message.consumer, PlaceInOrder(program, absl::StrCat(input, ".weight_gradient")))
            << grid << " " << input;
        ++gathered;
      }
    }
    EXPECT_GT(gathered, 0) << grid;
  }
}

// But for the gradients of weights, every op is there twice, of half of the rows.
TEST(GridScheduleTest, HalvesOfABatchTogetherTakeWhatTheWholeTakes) {
  GridProgramRequest request{.model = PlainTransformer("small", 4, 64, 8),
                             .training = {.batch = 16, .sequence = 8},
                             .device = *FindDevicePreset("a100")};
  request.model.vocabulary = 128;
  request.stages = *StagesOfGrid(*ParseGrid("r=2,z=2"), *ParseDevices("a.0-3"), {.layers = 4});
  const LayerProgram whole = *MakeGridProgram(request);
  request.training.overlaps.split_batch = true;
  EXPECT_NEAR(SecondsOfOps(*MakeGridProgram(request)), SecondsOfOps(whole), 1e-12);
}

// A model of as many layers as stages, or twice as many.
GridProgramRequest InterleavedRequest(const InterleavedCounts& counts, int64_t layers_of_stage) {
  const int64_t layers = counts.ranks * counts.chunks * layers_of_stage;
  GridProgramRequest request{.model = PlainTransformer("small", layers, 64, 8),
                             .training = {.batch = 4 * int64_t{counts.microbatches}, .sequence = 8},
                             .microbatches = counts.microbatches,
                             .device = *FindDevicePreset("a100")};
  request.model.vocabulary = 128;
  Grid grid = *ParseGrid("r=2,z=2");
  grid[GridAxis::kPipeline] = counts.ranks;
  std::vector<DeviceId> devices;
  for (int32_t device = 0; device < grid.devices(); ++device) {
    devices.push_back({.host = absl::StrCat("host", device)});
  }
  request.stages = *StagesOfGrid(grid, devices, {.layers = layers, .of_rank = counts.chunks});
  request.schedule = *MakeInterleaved(counts);
  return request;
}

TEST(GridScheduleTest, RanksTakeTurnsAmongTheirStages) {
  const GridProgramRequest request =
      InterleavedRequest({.ranks = 2, .chunks = 2, .microbatches = 4}, 1);
  const LayerProgram program = *MakeGridProgram(request);
  ASSERT_EQ(program.ranks.size(), 2U);
  EXPECT_EQ(program.ranks[0].mesh, request.stages[2].mesh);
  std::vector<std::string> first;
  for (const LayerProgram::Op& op : program.ops) {
    if (op.rank == 0) first.push_back(op.name);
    // Layer and stage have one rank.
    for (int stage = 0; stage < 4; ++stage) {
      if (!absl::StrContains(op.name, absl::StrCat("stage", stage, "."))) continue;
      EXPECT_EQ(op.rank, stage % 2) << op.name;
      EXPECT_TRUE(!absl::StrContains(op.name, "layer") ||
                  absl::StrContains(op.name, absl::StrCat("layer", stage, ".")))
          << op.name;
    }
  }
  EXPECT_THAT(first, Contains("m0.stage0.embed"));
  EXPECT_THAT(first, Contains("m0.stage2.arrive"));
  EXPECT_THAT(first, Contains("m3.stage2.leave_back"));
  EXPECT_THAT(first, Contains("stage0.update_vectors"));
  EXPECT_THAT(first, Contains("stage2.vectors"));
  EXPECT_THAT(first, Not(Contains(HasSubstr("logits"))));
  // Depth first: two microbatches of its first stage, then of its second one.
  const auto place = [&first](absl::string_view op) {
    return std::ranges::find(first, op) - first.begin();
  };
  EXPECT_LT(place("m1.stage0.embed"), place("m0.stage2.arrive"));
  EXPECT_LT(place("m1.stage2.arrive"), place("m2.stage0.embed"));
  EXPECT_LT(place("m0.stage2.leave_back"), place("m0.stage0.arrive_back"));
}

// Whatever the counts, the order can be done with the memory that transfers have, computes what
// stages on ranks of their own do, and moves the same.
TEST(GridScheduleTest, InterleavedProgramsOfAllCountsCanBeDone) {
  for (const int32_t ranks : {2, 3, 4}) {
    for (const int32_t chunks : {2, 3}) {
      for (const int32_t rounds : {1, 2, 3}) {
        const InterleavedCounts counts{
            .ranks = ranks, .chunks = chunks, .microbatches = ranks * rounds};
        SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", chunks, " chunks, ", rounds, " rounds"));
        GridProgramRequest request = InterleavedRequest(counts, 2);
        request.training.overlaps.split_batch = rounds == 2;
        const absl::StatusOr<LayerProgram> program = MakeGridProgram(request);
        ASSERT_EQ(program.status(), absl::OkStatus());
        GridProgramRequest apart = request;
        for (size_t stage = 0; stage < apart.stages.size(); ++stage) {
          std::vector<DeviceId> devices;
          for (int32_t device = 0; device < 4; ++device) {
            devices.push_back({.host = absl::StrCat("host", stage), .index = device});
          }
          apart.stages[stage].mesh =
              std::make_shared<const Mesh>(*MeshOfGrid(apart.stages[stage].grid, devices));
        }
        apart.schedule = *MakeOneForwardOneBackward(ranks * chunks, counts.microbatches);
        const LayerProgram one_each = *MakeGridProgram(apart);
        EXPECT_EQ(program->ops.size(), one_each.ops.size());
        EXPECT_NEAR(SecondsOfOps(*program), SecondsOfOps(one_each), 1e-12);
        EXPECT_EQ(program->transfers.size(), one_each.transfers.size());
      }
    }
  }
}

TEST(GridScheduleTest, SchedulesOfOtherStagesAreRefused) {
  const auto refusal = [](const GridProgramRequest& request) {
    const absl::Status status = MakeGridProgram(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  const GridProgramRequest sound =
      InterleavedRequest({.ranks = 2, .chunks = 2, .microbatches = 4}, 1);
  GridProgramRequest request = sound;
  request.schedule = *MakeOneForwardOneBackward(2, 4);
  EXPECT_THAT(refusal(request),
              HasSubstr("expected a schedule of 4 stages, found no ops of stage 2"));
  request.schedule = *MakeOneForwardOneBackward(6, 4);
  EXPECT_THAT(refusal(request), HasSubstr("4 stages, each on one rank, found stage 4 on rank 4"));
  request.schedule = *MakeInterleaved({.ranks = 2, .chunks = 2, .microbatches = 2});
  EXPECT_THAT(refusal(request), HasSubstr("4 microbatches, found 2 ranks and 2"));
  request.schedule = {.stages = 4, .microbatches = 4, .ranks = {}};
  EXPECT_THAT(refusal(request), HasSubstr("found 0 ranks and 4"));
  request.schedule = sound.schedule;
  std::swap(request.schedule.ranks[0], request.schedule.ranks[1]);
  EXPECT_EQ(MakeGridProgram(request).status(), absl::OkStatus());
  for (Op& op : request.schedule.ranks[1]) op.stage = op.stage == 2 ? 1 : op.stage;
  EXPECT_THAT(refusal(request), HasSubstr("each on one rank, found stage 1 on rank 1"));
  // Down and up again.
  request.schedule = sound.schedule;
  for (auto& ops : request.schedule.ranks) {
    for (Op& op : ops) op.stage = op.stage < 2 ? op.stage : 5 - op.stage;
  }
  EXPECT_THAT(refusal(request), HasSubstr("found stages 1 and 2 on rank 1"));
  request.schedule = sound.schedule;
  request.schedule.ranks[1].pop_back();
  EXPECT_THAT(refusal(request), HasSubstr("a backward op of stage 1"));
  request = sound;
  request.stages[2].mesh = request.stages[1].mesh;
  EXPECT_THAT(refusal(request), HasSubstr("stages of a rank on one mesh"));
}

}  // namespace
}  // namespace crossmesh
