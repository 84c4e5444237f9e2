#include "planner/parallelism/programs/grid_program.h"

#include "planner/parallelism/grid_rules.h"
#include "planner/parallelism/grid_shape.h"
#include "planner/parallelism/network_rates.h"
#include "planner/parallelism/programs/grid_op.h"
#include "planner/parallelism/step_model.h"
#include "planner/pipeline/schedules/window_order.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

constexpr double kItemBytes = 2;

Transformer SmallModel() {
  Transformer model = PlainTransformer("small", 4, 64, 8);
  model.vocabulary = 128;
  return model;
}

Transformer BigModel(int64_t hidden, int64_t vocabulary) {
  Transformer model = PlainTransformer("big", 4, hidden, 8);
  model.vocabulary = vocabulary;
  return model;
}

GridStage StageOn(const Grid& grid, int64_t layers) {
  std::vector<DeviceId> devices;
  for (int64_t i = 0; i < grid.devices(); ++i) {
    devices.push_back({.host = "a", .index = static_cast<int32_t>(i)});
  }
  absl::StatusOr<Mesh> mesh = MeshOfGrid(grid, devices);
  EXPECT_EQ(mesh.status(), absl::OkStatus());
  return {.grid = grid, .mesh = std::make_shared<const Mesh>(*mesh), .layers = layers};
}

GridProgramRequest RequestOn(absl::string_view grid) {
  GridProgramRequest request{.model = SmallModel(),
                             .training = {.batch = 16, .sequence = 8, .keep_gathered = true},
                             .device = *FindDevicePreset("a100")};
  request.stages.push_back(StageOn(*ParseGrid(grid), request.model.layers));
  return request;
}

const LayerProgram::Transfer* Find(const LayerProgram& program, absl::string_view name) {
  const auto found = std::ranges::find(program.transfers, name, &LayerProgram::Transfer::name);
  return found == program.transfers.end() ? nullptr : &*found;
}

int32_t PlaceOf(const LayerProgram& program, absl::string_view name) {
  const auto found = std::ranges::find(program.ops, name, &LayerProgram::Op::name);
  return found == program.ops.end() ? -1 : static_cast<int32_t>(found - program.ops.begin());
}

// The bytes of a message as models of collectives count them: what is reduced, or gathered.
double MessageBytes(const LayerProgram& program, const LayerProgram::Transfer& transfer) {
  const Mesh& mesh = *program.ranks[program.from(transfer)].mesh;
  double bytes = 0;
  for (const LayerProgram::Tensor& tensor : transfer.tensors) {
    const Layout& larger = transfer.partial.empty() ? tensor.destination : tensor.source;
    bytes += static_cast<double>(Volume(larger.Tiles(mesh, tensor.tensor.shape)[0]) *
                                 ItemBytes(tensor.tensor.type));
  }
  return bytes;
}

// Of the axis over which tiles differ, or are summed.
std::string AxisOf(const LayerProgram::Transfer& transfer) {
  if (!transfer.partial.empty()) return transfer.partial.front();
  if (absl::StrContains(transfer.name, "gather")) return "z";
  return transfer.tensors.front().source.axes()->dimensions[0].back();
}

// The model counts what matrices move; of vectors it has sums axis after axis.
bool IsPriced(const LayerProgram::Transfer& transfer) {
  return !absl::StrContains(transfer.name, "norm") && !absl::StrContains(transfer.name, "loss") &&
         !absl::StrContains(transfer.name, "vectors");
}

TEST(GridProgramTest, MovesWhatTheCostModelPrices) {
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  int priced = 0;
  for (int attempt = 0; attempt < 400; ++attempt) {
    Grid grid;
    for (const GridAxis axis : {GridAxis::kC, GridAxis::kR, GridAxis::kZ, GridAxis::kData}) {
      grid[axis] = int64_t{1} << random() % 3;
    }
    GridProgramRequest request = RequestOn("c=1");
    request.microbatches = 1 + static_cast<int32_t>(random() % 2);
    request.training.activations =
        random() % 2 == 0 ? ActivationForm::kReplicated : ActivationForm::kScattered;
    if (request.training.activations == ActivationForm::kScattered && grid.c() == grid.r()) {
      request.training.vectors = VectorForm::kDiagonal;
    }
    request.training.cached_layers = static_cast<int64_t>(random() % 3);
    request.training.data_gradient_bytes = 4;
    request.training.overlaps.backward_gathers = random() % 2 == 0;
    const int64_t parts = grid.sample_groups() * request.microbatches;
    if (request.training.batch % parts != 0) continue;
    request.training.microbatch = request.training.batch / parts;
    if (FirstFailure(request.model, request.training, grid).has_value() ||
        FirstFailure(request.model, request.training, grid, request.training.microbatch)) {
      continue;
    }
    request.stages = {StageOn(grid, request.model.layers)};
    const absl::StatusOr<LayerProgram> program = MakeGridProgram(request);
    ASSERT_EQ(program.status(), absl::OkStatus()) << grid;

    std::map<std::string, double> expected;
    const StepModel model =
        *StepModel::Create(request.model, request.training, request.device,
                           *RatesOfNetwork(request.stages[0].mesh->devices(), Topology()));
    for (const CollectiveUse& use : model.Collectives(
             ShapeOf(request.model, request.training, grid, request.training.microbatch))) {
      if (use.object == "vectors") continue;
      expected[std::string(GridAxisName(use.axis))] += use.message_bytes * use.count;
    }
    std::map<std::string, double> found;
    for (const LayerProgram::Transfer& transfer : program->transfers) {
      if (!IsPriced(transfer)) continue;
      found[AxisOf(transfer)] +=
          MessageBytes(*program, transfer) * static_cast<double>(transfer.messages.size());
    }
    for (const auto& [axis, bytes] : expected) {
      EXPECT_NEAR(found[axis], bytes, 1e-6 * bytes + kItemBytes) << grid << " over " << axis;
    }
    EXPECT_EQ(found.size(), expected.size()) << grid;
    ++priced;
  }
  EXPECT_GT(priced, 20);
}

TEST(GridProgramTest, AnInputGradientsSumHidesBehindTheWeightsProduct) {
  GridProgramRequest request = RequestOn("r=2,z=2");
  const LayerProgram hidden = *MakeGridProgram(request);
  EXPECT_EQ(PlaceOf(hidden, "m0.layer1.qkv.wait_gradient"), -1);
  const LayerProgram::Message& sum = Find(hidden, "qkv.gradient_sum")->messages[2];
  EXPECT_EQ(hidden.ops[sum.producer].name, "m0.layer1.qkv.input_gradient");
  EXPECT_EQ(hidden.ops[sum.consumer].name, "m0.layer1.qkv.norm_gradient");
  const int32_t product = PlaceOf(hidden, "m0.layer1.qkv.weight_gradient");
  EXPECT_LT(sum.producer, product);
  EXPECT_GT(sum.consumer, product);
  request.training.overlaps.input_gradients = false;
  const LayerProgram exposed = *MakeGridProgram(request);
  EXPECT_EQ(PlaceOf(exposed, "m0.layer1.qkv.wait_gradient"),
            PlaceOf(exposed, "m0.layer1.qkv.input_gradient") + 1);
  EXPECT_GT(PlaceOf(exposed, "m0.layer1.qkv.weight_gradient"),
            PlaceOf(exposed, "m0.layer1.qkv.wait_gradient"));
  // Transposed layers sum theirs over c, which is one here: weights first.
  EXPECT_LT(PlaceOf(hidden, "m0.layer1.mlp_out.weight_gradient"),
            PlaceOf(hidden, "m0.layer1.mlp_out.input_gradient"));
}

TEST(GridProgramTest, WeightsAreGatheredOneMatrixAhead) {
  GridProgramRequest request = RequestOn("z=2");
  const LayerProgram ahead = *MakeGridProgram(request);
  EXPECT_LT(PlaceOf(ahead, "m0.layer1.qkv.give"), PlaceOf(ahead, "m0.layer0.mlp_out.forward"));
  EXPECT_GT(PlaceOf(ahead, "m0.layer1.qkv.give"), PlaceOf(ahead, "m0.layer0.mlp_in.forward"));
  EXPECT_GT(PlaceOf(ahead, "m0.layer0.mlp_out.give_back"),
            PlaceOf(ahead, "m0.layer1.qkv.weight_gradient"));
  request.training.overlaps.weight_gathers = false;
  request.training.overlaps.backward_gathers = true;
  const LayerProgram other = *MakeGridProgram(request);
  EXPECT_GT(PlaceOf(other, "m0.layer1.qkv.give"), PlaceOf(other, "m0.layer0.mlp_out.forward"));
  EXPECT_LT(PlaceOf(other, "m0.layer0.mlp_out.give_back"),
            PlaceOf(other, "m0.layer1.qkv.input_gradient"));
}

TEST(GridProgramTest, CachedLayersAreGatheredOnce) {
  GridProgramRequest request = RequestOn("z=2");
  request.training.cached_layers = 3;
  const LayerProgram program = *MakeGridProgram(request);
  EXPECT_EQ(Find(program, "qkv.gather")->messages.size(), 4U);
  EXPECT_EQ(Find(program, "qkv.backward_gather")->messages.size(), 1U);
  EXPECT_EQ(Find(program, "logits.backward_gather"), nullptr);
}

TEST(GridProgramTest, SoManyScattersArePending) {
  for (const int32_t window : {1, 2, 3}) {
    GridProgramRequest request = RequestOn("z=2");
    request.training.pending_scatters = window;
    const LayerProgram program = *MakeGridProgram(request);
    const LayerProgram::Transfer& scatter = *Find(program, "qkv.scatter");
    EXPECT_EQ(scatter.buffers, window);
    ASSERT_EQ(scatter.messages.size(), 4U);
    for (size_t message = 0; message < 4; ++message) {
      // The op that gives the message so many further on comes after the take, and no earlier one.
      const int32_t take = scatter.messages[message].consumer;
      EXPECT_EQ(program.ops[take].layer, program.ops[scatter.messages[message].producer].layer);
      if (message + window < 4) {
        EXPECT_LT(take, scatter.messages[message + window].producer);
      }
      if (message + window - 1 < 4) {
        EXPECT_GT(take, scatter.messages[message + window - 1].producer);
      }
    }
    request.training.overlaps.weight_gradients = false;
    const LayerProgram at_once = *MakeGridProgram(request);
    for (const LayerProgram::Message& message : Find(at_once, "qkv.scatter")->messages) {
      EXPECT_EQ(message.consumer, message.producer + 1);
    }
  }
}

TEST(GridProgramTest, HalvesOfABatchTakeTurns) {
  GridProgramRequest request = RequestOn("c=2,r=2");
  request.training.overlaps.split_batch = true;
  const LayerProgram program = *MakeGridProgram(request);
  const LayerProgram::Transfer& sum = *Find(program, "qkv.sum");
  EXPECT_EQ(sum.messages.size(), 8U);
  EXPECT_EQ(sum.tensors[0].tensor.shape[0], 16 * 8 / 2);
  // The second half's product is between the first half's and what needs its sum.
  EXPECT_EQ(program.ops[sum.messages[0].producer].name, "m0a.layer0.qkv.forward");
  EXPECT_EQ(program.ops[sum.messages[0].producer + 1].name, "m0b.layer0.qkv.forward");
  EXPECT_EQ(program.ops[sum.messages[0].consumer].name, "m0a.layer0.attention_out.input");
}

// What a layout neither cuts nor sums over an axis is the same on all of it, by the meaning of
// layouts: a plan may take it from any of the devices. Copies of the model have only weights, and
// what is summed over them, in common.
TEST(GridProgramTest, CopiesOfTheModelHaveOnlyWeightsInCommon) {
  for (const ActivationForm form : {ActivationForm::kReplicated, ActivationForm::kScattered}) {
    GridProgramRequest request = RequestOn("c=2,r=2,z=2,data=2");
    request.training.activations = form;
    const LayerProgram program = *MakeGridProgram(request);
    for (const LayerProgram::Transfer& transfer : program.transfers) {
      if (absl::EndsWith(transfer.name, "gather")) continue;
      bool tells_apart = std::ranges::find(transfer.partial, "data") != transfer.partial.end();
      for (const auto& axes : transfer.tensors.front().source.axes()->dimensions) {
        tells_apart = tells_apart || std::ranges::find(axes, "data") != axes.end();
      }
      EXPECT_TRUE(tells_apart) << transfer.name;
    }
  }
}

TEST(GridProgramTest, EveryOpHasAGridOpsName) {
  GridProgramRequest request = RequestOn("c=2,r=2,z=2,data=2");
  request.microbatches = 2;
  const LayerProgram program = *MakeGridProgram(request);
  for (const LayerProgram::Op& op : program.ops) {
    const absl::StatusOr<GridOp> parsed = ParseGridOp(op.name);
    ASSERT_EQ(parsed.status(), absl::OkStatus());
    EXPECT_EQ(ToString(*parsed), op.name);
    EXPECT_EQ(op.layer, LayerNameOf(*parsed)) << op.name;
  }
}

TEST(GridProgramTest, StagesHaveGridsOfTheirOwn) {
  GridProgramRequest request = RequestOn("c=1");
  request.stages = {StageOn(*ParseGrid("r=2,z=2"), 1), StageOn(*ParseGrid("c=2,r=2"), 3)};
  request.microbatches = 4;
  request.schedule = *MakeEagerOneForwardOneBackward(2, 4);
  const absl::StatusOr<LayerProgram> program = MakeGridProgram(request);
  ASSERT_EQ(program.status(), absl::OkStatus());
  const LayerProgram::Transfer& activations = *Find(*program, "stage0.activations");
  EXPECT_EQ(program->from(activations), 0);
  EXPECT_EQ(program->to(activations), 1);
  EXPECT_EQ(activations.messages.size(), 4U);
  EXPECT_EQ(Find(*program, "stage1.gradients")->messages.size(), 4U);
  EXPECT_EQ(Find(*program, "stage1.activations"), nullptr);
  EXPECT_EQ(program->ops[activations.messages[0].consumer].name, "m0.arrive");
  EXPECT_GE(PlaceOf(*program, "m3.layer3.mlp_out.forward"), 0);
}

TEST(GridProgramTest, StagesAreInsideCopies) {
  const std::vector<DeviceId> devices = *ParseDevices("a.0-7");
  const std::vector<GridStage> stages =
      *StagesOfGrid(*ParseGrid("r=2,pipeline=2,data=2"), devices, {.layers = 4});
  ASSERT_EQ(stages.size(), 2U);
  EXPECT_EQ(ToString(*stages[0].mesh), "data=2,z=1,r=2,c=1 on a.0-1,a.4-5");
  EXPECT_EQ(ToString(*stages[1].mesh), "data=2,z=1,r=2,c=1 on a.2-3,a.6-7");
  EXPECT_EQ(stages[1].layers, 2);
  EXPECT_THAT(std::string(StagesOfGrid(*ParseGrid("r=2,pipeline=2,data=2"), devices, {.layers = 3})
                              .status()
                              .message()),
              HasSubstr("layers that 2 stages divide, found 8 and 3"));
  EXPECT_THAT(
      std::string(
          StagesOfGrid(*ParseGrid("r=4,context=2"), devices, {.layers = 4}).status().message()),
      HasSubstr("expected a grid of c, r, z and data"));
}

TEST(GridProgramTest, ASchedulesOpsAreThereOnceAndInOrder) {
  GridProgramRequest request = RequestOn("c=1");
  request.stages = {StageOn(*ParseGrid("r=2"), 1), StageOn(*ParseGrid("c=2"), 3)};
  request.microbatches = 2;
  const Schedule whole = *MakeEagerOneForwardOneBackward(2, 2);
  const auto refusal = [&](const std::function<void(std::vector<Op>&)>& spoil) {
    request.schedule = whole;
    spoil(request.schedule.ranks[1]);
    const absl::Status found = MakeGridProgram(request).status();
    EXPECT_EQ(found.code(), absl::StatusCode::kInvalidArgument);
    return std::string(found.message());
  };
  EXPECT_THAT(refusal([](auto& ops) { ops.pop_back(); }), HasSubstr("found 3 ops"));
  EXPECT_THAT(refusal([](auto& ops) { ops.push_back(ops.front()); }), HasSubstr("found 1F0"));
  EXPECT_THAT(refusal([](auto& ops) { std::swap(ops[0], ops[1]); }), HasSubstr("found 1B0"));
  EXPECT_THAT(refusal([](auto& ops) { ops[0].microbatch = 2; }), HasSubstr("found 1F2"));
  EXPECT_THAT(refusal([](auto& ops) { ops[0].stage = 0; }),
              HasSubstr("each on one rank, found stage 0 on rank 1"));
  EXPECT_THAT(refusal([](auto& ops) { ops[1].kind = OpKind::kInputGradient; }),
              HasSubstr("found 4 ops"));
  EXPECT_THAT(refusal([](auto& ops) { ops[1].kind = OpKind::kWeightGradient; }),
              HasSubstr("found 1W0"));
}

TEST(GridProgramTest, WhatCannotBeRunIsRefused) {
  struct Case {
    std::string expected;
    std::function<void(GridProgramRequest&)> spoil;
  };
  const std::vector<Case> cases = {
      {"r=16 does not divide 8 heads",
       [](auto& request) { request.stages = {StageOn(*ParseGrid("r=16"), 4)}; }},
      {"stage 0: ", [](auto& request) { request.stages[0].layers = 0; }},
      {"4 layers, found 3", [](auto& request) { request.stages[0].layers = 3; }},
      {"a vocabulary, found none", [](auto& request) { request.model.vocabulary = 0; }},
      {"a vocabulary that r cuts", [](auto& request) { request.model.vocabulary = 127; }},
      {"order c,r,z,context,expert,pipeline,data, found r,c",
       [](auto& request) { std::swap(request.training.order[0], request.training.order[1]); }},
      {"found stage 1", [](auto& request) { request.training.zero = 1; }},
      {"rows of a batch, found",
       [](auto& request) { request.training.batch = request.training.sequence = 1 << 29; }},
      {"activations of a batch, found",
       [](auto& request) {
         request.model = BigModel(64, 512);
         request.training.batch = request.training.sequence = 1 << 20;
       }},
      {"elements of a matrix, found",
       [](auto& request) { request.model = BigModel(1 << 20, 1 << 22); }},
      {"norms, biases and embeddings, found",
       [](auto& request) {
         request.model = BigModel(1 << 12, 1 << 12);
         request.training.batch = 2;
         request.training.sequence = 1 << 29;
       }},
      {"found full", [](auto& request) { request.training.recompute = Recompute::kFull; }},
      {"are not",
       [](auto& request) {
         request.training.activations = ActivationForm::kScattered;
         request.training.keep_gathered = false;
       }},
      {"replicated ones beside replicated activations",
       [](auto& request) { request.training.vectors = VectorForm::kDiagonal; }},
      {"need c = r",
       [](auto& request) {
         request.training.activations = ActivationForm::kScattered;
         request.training.vectors = VectorForm::kDiagonal;
       }},
      {"expected microbatches, found 0", [](auto& request) { request.microbatches = 0; }},
      {"even microbatch",
       [](auto& request) {
         request.training.overlaps.split_batch = true;
         request.microbatches = 16;
       }},
      {"found 16 sequences", [](auto& request) { request.microbatches = 3; }},
      {"2 stages and 1 microbatch, found 0 ranks and 0",
       [](auto& request) {
         request.stages = {StageOn(*ParseGrid("r=2"), 1), StageOn(*ParseGrid("r=2"), 3)};
       }},
      {"of grid r=2, found",
       [](auto& request) {
         request.stages[0].mesh =
             std::make_shared<const Mesh>(*ParseMesh("data=2,z=1,r=1,c=1 on a.0-1"));
       }},
  };
  for (const Case& test : cases) {
    GridProgramRequest request = RequestOn("r=2");
    test.spoil(request);
    const absl::Status found = MakeGridProgram(request).status();
    EXPECT_EQ(found.code(), absl::StatusCode::kInvalidArgument) << test.expected;
    EXPECT_THAT(std::string(found.message()), HasSubstr(test.expected));
  }
}

}  // namespace
}  // namespace crossmesh
