#include "planner/parallelism/layer_grids.h"

#include <random>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LayerGridsTest, AreReadAsTheyAreWritten) {
  for (const char* text : {"r=2,z=4", "r=2,z=4+z=8@mlp", "z=8+c=2,r=4@0-1.attention+r=8@3",
                           "z=8+r=8@logits", "c=8+z=8@0-3+r=8@2.mlp"}) {
    const absl::StatusOr<LayerGrids> grids = ParseLayerGrids(text);
    ASSERT_EQ(grids.status(), absl::OkStatus());
    EXPECT_EQ(ToString(*grids), text);
  }
}

TEST(LayerGridsTest, WhatIsNoGridOfLayersIsNamed) {
  for (const char* text : {"z=8@", "z=8", "z=8@mlps", "z=8@3-1", "z=8@-1", "z=8@1.", "z=8@mlp.1",
                           "z=8@1.logits", "z=8@01", "z=8@1-1", "z=8@1@mlp"}) {
    const absl::Status status = ParseLayerGrids(absl::StrCat("r=8+", text)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("found \"", text, "\"")));
  }
  EXPECT_THAT(std::string(ParseLayerGrids("r=8+q=8@mlp").status().message()), HasSubstr("q"));
}

TEST(LayerGridsTest, TheLaterOneCounts) {
  const LayerGrids grids = *ParseLayerGrids("z=8+r=8@mlp+c=8@1");
  EXPECT_EQ(ToString(grids.Of({ModelPart::kAttention, 0})), "z=8");
  EXPECT_EQ(ToString(grids.Of({ModelPart::kMlp, 0})), "r=8");
  EXPECT_EQ(ToString(grids.Of({ModelPart::kMlp, 1})), "c=8");
  // Layers have no logits.
  EXPECT_EQ(ToString(grids.Of({ModelPart::kLogits, 1})), "z=8");
}

TEST(LayerGridsTest, PartsOfAStageComeInTheOrderOfAPass) {
  const PartsOnGrids parts = *PartsOf(*ParseLayerGrids("z=8+r=8@mlp+z=8@3.mlp"),
                                      {.first_layer = 2, .layers = 2, .has_logits = true});
  EXPECT_THAT(parts.grid_of, ElementsAre(0, 1, 0, 0, 0));
  EXPECT_EQ(ToString(parts.places[1]), "layer2.mlp");
  EXPECT_EQ(ToString(parts.places[4]), "logits");
  EXPECT_FALSE(parts.IsJoint(0));
  EXPECT_TRUE(parts.IsJoint(1));
  EXPECT_TRUE(parts.IsJoint(2));
  EXPECT_FALSE(parts.IsJoint(3));
}

TEST(LayerGridsTest, LayersThatAStageDoesNotHaveAreRefused) {
  const StageParts stage{.first_layer = 2, .layers = 2, .has_logits = false};
  for (const char* other : {"z=8@0-2", "z=8@4", "z=8@logits", "z=8@2-7"}) {
    EXPECT_THAT(
        std::string(
            PartsOf(*ParseLayerGrids(absl::StrCat("r=8+", other)), stage).status().message()),
        HasSubstr(absl::StrCat("grid ", other, ": expected layers of 2 to 3")));
  }
  EXPECT_THAT(std::string(PartsOf(*ParseLayerGrids("r=8+z=4@2"), stage).status().message()),
              HasSubstr("grid z=4@2: expected 8 devices, as r=8 has, found 4"));
}

// Every axis of every grid begins and ends at a cut, and there are no others.
TEST(LayerGridsTest, AxesThatLieInsideEachOtherHaveCuts) {
  EXPECT_THAT(*CutsOf(std::vector<Grid>{*ParseGrid("c=2,r=4"), *ParseGrid("r=2,z=4")}),
              ElementsAre(1, 2, 8));
  EXPECT_THAT(*CutsOf(std::vector<Grid>{*ParseGrid("c=2,z=6"), *ParseGrid("r=4,data=3")}),
              ElementsAre(1, 2, 4, 12));
}

TEST(LayerGridsTest, AxesThatCutAcrossEachOtherAreNamed) {
  const absl::Status status =
      CutsOf(std::vector<Grid>{*ParseGrid("c=2,r=3"), *ParseGrid("c=3,r=2")}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("grids c=2,r=3 and c=3,r=2: expected axes that lie inside each other, found "
                "one that ends after 2 devices, and one after 3"));
}

}  // namespace
}  // namespace crossmesh
