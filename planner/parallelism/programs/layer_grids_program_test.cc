#include "planner/layers/planned_layers.h"
#include "planner/parallelism/layer_grids.h"
#include "planner/parallelism/programs/grid_op.h"
#include "planner/parallelism/programs/grid_program.h"

#include <algorithm>
#include <cstdint>
#include <memory>
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

GridProgramRequest LayersRequest(absl::string_view text) {
  Transformer model = PlainTransformer("small", 2, 64, 8);
  model.vocabulary = 128;
  GridProgramRequest request{.model = model,
                             .training = {.batch = 16, .sequence = 8, .keep_gathered = true},
                             .device = *FindDevicePreset("a100")};
  const LayerGrids grids = *ParseLayerGrids(text);
  std::vector<Grid> all = {grids.grid};
  for (const GridOfLayers& other : grids.others) all.push_back(other.grid);
  const auto devices = *ParseDevices("a.0,b.0,c.0,d.0,e.0,f.0,g.0,h.0");
  absl::StatusOr<PartsOnGrids> parts = PartsOf(grids, {.layers = model.layers});
  if (parts.ok()) all = parts->grids;
  const absl::StatusOr<Mesh> mesh = MeshOfGrids(all, devices);
  request.stages.push_back({.grid = grids.grid,
                            .mesh = mesh.ok() ? std::make_shared<const Mesh>(*mesh) : nullptr,
                            .layers = model.layers,
                            .others = grids.others});
  return request;
}

const LayerProgram::Transfer* TransferNamed(const LayerProgram& program, absl::string_view name) {
  const auto found = std::ranges::find(program.transfers, name, &LayerProgram::Transfer::name);
  return found == program.transfers.end() ? nullptr : &*found;
}

int32_t PlaceOfOp(const LayerProgram& program, absl::string_view name) {
  const auto found = std::ranges::find(program.ops, name, &LayerProgram::Op::name);
  return found == program.ops.end() ? -1 : static_cast<int32_t>(found - program.ops.begin());
}

TEST(LayerGridsProgramTest, TheResidualStreamGoesFromGridToGridAndItsGradientBack) {
  const LayerProgram program = *MakeGridProgram(LayersRequest("r=2,z=4+c=2,r=2,z=2@mlp"));
  const LayerProgram::Transfer* there = TransferNamed(program, "grid0.grid1.activations");
  ASSERT_NE(there, nullptr);
  ASSERT_EQ(there->messages.size(), 2U);
  EXPECT_EQ(program.ops[there->messages[1].producer].name, "m0.layer1.mlp_in.leave");
  EXPECT_EQ(program.ops[there->messages[1].consumer].name, "m0.layer1.mlp_in.arrive");
  // To the next layer's attention, and to the logits.
  EXPECT_EQ(TransferNamed(program, "grid1.grid0.activations")->messages.size(), 2U);
  const LayerProgram::Transfer& back = *TransferNamed(program, "grid1.grid0.gradients");
  EXPECT_EQ(program.ops[back.messages[0].producer].name, "m0.layer1.mlp_in.leave_back");
  EXPECT_EQ(program.ops[back.messages[0].consumer].name, "m0.layer1.mlp_in.arrive_back");
  EXPECT_EQ(ToString(back.tensors[0].source), ToString(there->tensors[0].destination));
  EXPECT_EQ(ToString(back.tensors[0].destination), ToString(there->tensors[0].source));
  // Between the norm's gradient of the one and the output's of the other.
  EXPECT_GT(back.messages[0].producer, PlaceOfOp(program, "m0.layer1.mlp_in.norm_gradient"));
  EXPECT_LT(back.messages[0].consumer,
            PlaceOfOp(program, "m0.layer1.attention_out.output_gradient"));
}

TEST(LayerGridsProgramTest, EachGridHasItsOwnCollectives) {
  const LayerProgram program = *MakeGridProgram(LayersRequest("r=2,z=4+c=8@mlp"));
  EXPECT_NE(TransferNamed(program, "grid0.qkv.gather"), nullptr);
  EXPECT_EQ(TransferNamed(program, "grid1.mlp_in.gather"), nullptr);
  EXPECT_NE(TransferNamed(program, "grid1.mlp_in.sum"), nullptr);
  EXPECT_EQ(TransferNamed(program, "grid0.mlp_in.sum"), nullptr);
  // Vectors of attention and of the last norm, in whole devices, and those of the MLP.
  const int64_t h = 64;
  EXPECT_EQ(TransferNamed(program, "grid0.vectors_of_c")->tensors[0].tensor.shape[0],
            2 * 3 * h + 2 * h + (128 + 8) * h);
  EXPECT_EQ(TransferNamed(program, "grid0.vectors_of_r")->tensors[0].tensor.shape[0], 2 * 3 * h);
  EXPECT_EQ(TransferNamed(program, "grid1.vectors_of_c"), nullptr);  // nothing copies them
  for (const LayerProgram::Op& op : program.ops) {
    const absl::StatusOr<GridOp> parsed = ParseGridOp(op.name);
    ASSERT_EQ(parsed.status(), absl::OkStatus());
    EXPECT_EQ(ToString(*parsed), op.name);
  }
}

TEST(LayerGridsProgramTest, WhatLiesTheSameDoesNotMove) {
  const LayerProgram program = *MakeGridProgram(LayersRequest("r=2,z=4+r=2,z=2,data=2@mlp"));
  EXPECT_EQ(TransferNamed(program, "grid0.grid1.activations"), nullptr);
  EXPECT_GE(PlaceOfOp(program, "m0.layer0.mlp_in.leave"), 0);
}

// The same grid by another name is the same program.
TEST(LayerGridsProgramTest, OneGridIsOneGrid) {
  const LayerProgram plain = *MakeGridProgram(LayersRequest("r=2,z=4"));
  const LayerProgram named = *MakeGridProgram(LayersRequest("c=8+r=2,z=4@0-1+r=2,z=4@logits"));
  ASSERT_EQ(named.ops.size(), plain.ops.size());
  ASSERT_EQ(named.transfers.size(), plain.transfers.size());
  for (size_t i = 0; i < plain.transfers.size(); ++i) {
    EXPECT_EQ(named.transfers[i].name, plain.transfers[i].name);
  }
}

// Between hosts, of one message.
int64_t NetworkBytes(absl::string_view grids, absl::string_view transfer) {
  LayerProgram program = *MakeGridProgram(LayersRequest(grids));
  std::erase_if(program.transfers, [&](const auto& of) { return of.name != transfer; });
  const auto planned = PlanLayers(std::move(program), Topology());
  EXPECT_EQ(planned.status(), absl::OkStatus());
  return planned.value()->transfers.front().network_bytes();
}

// Of slice, gather and all-to-all the cheapest.
TEST(LayerGridsProgramTest, AJointMovesNoMoreThanItMust) {
  const int64_t bytes = int64_t{16} * 8 * 64 * 2;
  // Copies over r become parts of rows, and these copies.
  EXPECT_EQ(NetworkBytes("r=8+z=8@mlp", "grid0.grid1.activations"), 0);
  EXPECT_EQ(NetworkBytes("r=8+z=8@mlp", "grid1.grid0.activations"), 7 * bytes);
  // Features become rows: of each device one part in eight stays.
  EXPECT_EQ(NetworkBytes("c=8+z=8@mlp", "grid0.grid1.activations"), bytes * 7 / 8);
}

TEST(LayerGridsProgramTest, WhatDoesNotFitIsRefusedWithItsGrid) {
  const auto refusal = [](const GridProgramRequest& request) {
    const absl::Status status = MakeGridProgram(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal(LayersRequest("r=2,z=4+z=8@2")), HasSubstr("stage 0"));
  GridProgramRequest odd = LayersRequest("r=2,z=4+r=8@mlp");
  odd.model.heads = odd.model.kv_heads = 4;
  odd.model.head_width = 16;
  EXPECT_THAT(refusal(odd), HasSubstr("grid r=8: r=8 does not divide 4 heads"));
  GridProgramRequest diagonal = LayersRequest("c=2,r=2,z=2+z=8@mlp");
  diagonal.training.activations = ActivationForm::kScattered;
  diagonal.training.vectors = VectorForm::kDiagonal;
  EXPECT_THAT(refusal(diagonal), HasSubstr("one grid in a stage beside vectors on the diagonal"));
  GridProgramRequest other = LayersRequest("r=2,z=4");
  other.stages[0].others = {{.grid = *ParseGrid("z=8"), .part = ModelPart::kMlp}};
  EXPECT_THAT(refusal(other), HasSubstr("expected a mesh inner2=4,inner1=2"));
}

}  // namespace
}  // namespace crossmesh
