#include "planner/parallelism/programs/grid_op.h"

#include <string>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

TEST(GridOpTest, NamesSayAllOfAnOp) {
  const std::vector<std::pair<GridOp, std::string>> cases = {
      {{.kind = GridOpKind::kForward, .microbatch = 0, .layer = 3, .matrix = "qkv"},
       "m0.layer3.qkv.forward"},
      {{.kind = GridOpKind::kInput, .microbatch = 12, .half = 1, .matrix = "logits"},
       "m12b.logits.input"},
      {{.kind = GridOpKind::kEmbed, .microbatch = 1, .half = 0}, "m1a.embed"},
      {{.kind = GridOpKind::kUpdate, .layer = 7, .matrix = "mlp_out"}, "layer7.mlp_out.update"},
      {{.kind = GridOpKind::kVectors}, "vectors"},
      {{.kind = GridOpKind::kLeave, .microbatch = 1, .half = 0, .stage = 2}, "m1a.stage2.leave"},
      {{.kind = GridOpKind::kTake, .microbatch = 0, .stage = 0, .layer = 3, .matrix = "qkv"},
       "m0.stage0.layer3.qkv.take"},
      {{.kind = GridOpKind::kUpdateVectors, .stage = 1}, "stage1.update_vectors"},
      {{.kind = GridOpKind::kUpdateVectors}, "update_vectors"},
  };
  for (const auto& [op, name] : cases) {
    EXPECT_EQ(ToString(op), name);
    EXPECT_EQ(*ParseGridOp(name), op) << name;
  }
}

TEST(GridOpTest, EveryKindHasANameOfItsOwn) {
  for (int kind = 0; kind <= static_cast<int>(GridOpKind::kUpdateVectors); ++kind) {
    const GridOp op{.kind = static_cast<GridOpKind>(kind), .microbatch = 2};
    EXPECT_EQ(*ParseGridOp(ToString(op)), op) << ToString(op);
  }
}

TEST(GridOpTest, OpsOfOneLayerAreOfOneNameWhateverTheirPassAndStage) {
  for (const auto& [name, layer] : std::vector<std::pair<std::string, std::string>>{
           {"m0.layer3.qkv.forward", "layer3"},
           {"m1b.stage2.layer3.mlp_out.take", "layer3"},
           {"layer3.qkv.update", "layer3"},
           {"m0.logits.give", "logits"},
           {"m0.embed", ""},
           {"vectors", ""}}) {
    EXPECT_EQ(LayerNameOf(*ParseGridOp(name)), layer) << name;
  }
}

TEST(GridOpTest, OtherTextIsRefused) {
  for (const std::string name :
       {"", "forwards", "m0.layer3.qkv.", ".forward", "m00.embed", "m0c.embed", "m-1.embed",
        "layer3.m0.qkv.forward", "m0.layer3.value.forward", "m0.qkv.layer3.forward", "m0..forward",
        "m0.layer3.stage1.qkv.forward", "m0.stage01.leave", "m99999999999.embed"}) {
    const absl::StatusOr<GridOp> found = ParseGridOp(name);
    EXPECT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(found.status().message()), HasSubstr(name));
  }
}

}  // namespace
}  // namespace crossmesh
