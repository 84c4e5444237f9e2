#include "planner/parallelism/grid_rules.h"

#include "common/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// 24 layers, h = 1536, 24 heads of which 8 have keys and values.
Transformer GroupedHeads() {
  Transformer model = PlainTransformer("model", 24, 1536, 24);
  model.kv_heads = 8;
  return model;
}

struct Refusal {
  const char* grid;
  GridRule rule;
  const char* text;
};

TEST(GridRulesTest, TheFirstRuleThatFailsIsNamedWithTheNearestFix) {
  const Training training{.batch = 96, .sequence = 3072};
  const Refusal refusals[] = {
      {"r=5", GridRule::kHeads, "r=5 does not divide 24 heads; the nearest that do: r=4, r=6"},
      {"r=48", GridRule::kHeads, "the nearest that do: r=24"},
      {"r=6", GridRule::kKvHeads,
       "r=6 does not divide 8 heads of keys and values; the nearest that do: r=4, r=8"},
      {"c=5", GridRule::kFeatures,
       "c=5 does not divide 1536 rows of qkv; the nearest that do: c=4, c=6"},
      {"z=5", GridRule::kShards,
       "elements of a block of attention_out; the nearest that do: z=4, z=6"},
      {"pipeline=5", GridRule::kLayers,
       "pipeline=5 does not divide 24 layers; the nearest that do: pipeline=4, pipeline=6"},
      {"expert=2", GridRule::kExperts, "needs a model with experts; the nearest fix: expert=1"},
      {"context=5", GridRule::kSequence,
       "context=5 cuts sequences into 10, which does not divide 3072 tokens; the nearest that do: "
       "context=4, context=6"},
      {"data=5", GridRule::kBatch, "z * expert * data=5 does not divide 96 sequences of the batch"},
      {"pipeline=8,data=24", GridRule::kMicrobatches,
       "pipeline=8 needs at least as many microbatches"},
  };
  for (const auto& [text, rule, explanation] : refusals) {
    const Grid grid = *ParseGrid(text);
    ASSERT_EQ(FirstFailure(GroupedHeads(), training, grid), rule) << text;
    EXPECT_THAT(ExplainFailure(GroupedHeads(), training, grid, rule), HasSubstr(explanation));
    EXPECT_THAT(CheckGrid(GroupedHeads(), training, grid),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  }
  EXPECT_OK(CheckGrid(GroupedHeads(), training, *ParseGrid("c=3,r=8,z=2,pipeline=4,data=4")));
}

TEST(GridRulesTest, OneIsNotManyInWhatIsSaid) {
  Transformer model = PlainTransformer("", 1, 64, 8);
  model.kv_heads = 1;
  const Training training{.batch = 1, .sequence = 16};
  const auto text = [&](const char* grid, GridRule rule) {
    return ExplainFailure(model, training, *ParseGrid(grid), rule);
  };
  EXPECT_THAT(text("r=2", GridRule::kKvHeads),
              HasSubstr("r=2 does not divide 1 head of keys and values"));
  EXPECT_THAT(text("pipeline=2", GridRule::kLayers), HasSubstr("does not divide 1 layer;"));
  EXPECT_THAT(text("data=2", GridRule::kBatch), HasSubstr("does not divide 1 sequence of the"));
  EXPECT_THAT(text("pipeline=2", GridRule::kMicrobatches),
              HasSubstr("has 1 sequence of the batch"));
}

TEST(GridRulesTest, AnOddSequenceIsNotCut) {
  const Training odd{.batch = 96, .sequence = 2049};
  EXPECT_EQ(ExplainFailure(GroupedHeads(), odd, *ParseGrid("context=4"), GridRule::kSequence),
            "context=4 cuts sequences into 8, which does not divide 2049 tokens; the nearest that "
            "do: context=1");
}

TEST(GridRulesTest, MicrobatchesAreAskedForTheirSize) {
  Training training{.batch = 96, .sequence = 3072, .microbatch = 5};
  const Grid grid = *ParseGrid("data=8");
  EXPECT_EQ(FirstFailure(GroupedHeads(), training, grid), GridRule::kMicrobatch);
  EXPECT_THAT(ExplainFailure(GroupedHeads(), training, grid, GridRule::kMicrobatch),
              HasSubstr("microbatch=5 does not divide 12 sequences that a device has"));
  training.microbatch = 4;
  EXPECT_EQ(FirstFailure(GroupedHeads(), training, grid), std::nullopt);
  EXPECT_EQ(FirstFailure(GroupedHeads(), training, *ParseGrid("pipeline=4,data=8")),
            GridRule::kMicrobatches);
  training = {.batch = 96, .sequence = 3072, .schedule = GridSchedule::kInterleaved, .chunks = 2};
  EXPECT_EQ(FirstFailure(GroupedHeads(), training, *ParseGrid("pipeline=4,data=8")), std::nullopt);
  EXPECT_EQ(FirstFailure(GroupedHeads(), training, *ParseGrid("pipeline=3,data=24")),
            GridRule::kMicrobatches);
  EXPECT_EQ(FirstFailure(GroupedHeads(), training, *ParseGrid("pipeline=24")), GridRule::kLayers);
}

TEST(GridRulesTest, TheCubeNeedsWidthsThatItsSquareDivides) {
  const Transformer model = PlainTransformer("", 4, 24, 8);
  Training training{.batch = 64, .sequence = 64, .activations = ActivationForm::kScattered};
  EXPECT_EQ(FirstFailure(model, training, *ParseGrid("c=2,r=2,z=2")), std::nullopt);
  EXPECT_EQ(FirstFailure(model, training, *ParseGrid("c=4,r=4,z=4")), GridRule::kCube);
  EXPECT_THAT(
      ExplainFailure(model, training, *ParseGrid("c=4,r=4,z=4"), GridRule::kCube),
      HasSubstr("a cube of q=4 needs widths that q^2=16 divides, and qkv has one of 24; the "
                "nearest q that does: 2"));
  // No cube: the square need not divide.
  EXPECT_EQ(FirstFailure(model, training, *ParseGrid("c=4,r=4,z=2")), std::nullopt);
  training.activations = ActivationForm::kReplicated;
  EXPECT_EQ(FirstFailure(model, training, *ParseGrid("c=4,r=4,z=4")), std::nullopt);
}

TEST(GridRulesTest, TheDiagonalNeedsASquareFaceAndWidthsThatItCuts) {
  const Transformer model = PlainTransformer("", 4, 24, 24);
  const Training training{.batch = 64,
                          .sequence = 64,
                          .activations = ActivationForm::kScattered,
                          .vectors = VectorForm::kDiagonal};
  EXPECT_EQ(FirstFailure(model, training, *ParseGrid("c=2,r=2,z=2")), std::nullopt);
  EXPECT_EQ(FirstFailure(model, training, *ParseGrid("z=8,data=2")), std::nullopt);
  EXPECT_EQ(FirstFailure(model, training, *ParseGrid("c=2,r=4")), GridRule::kVectors);
  EXPECT_THAT(std::string(CheckGrid(model, training, *ParseGrid("c=2,r=4")).message()),
              HasSubstr("vectors on the diagonal need c = r, and these are 2 and 4; the nearest "
                        "that do: c=2,r=2, c=4,r=4, or replicated vectors"));
  EXPECT_THAT(std::string(CheckDiagonal(model, *ParseGrid("c=2,r=2,z=8")).message()),
              HasSubstr("widths that c*z=16 divides, and qkv has one of 24; the nearest that do: "
                        "z=6, z=12"));
  // Of grouped heads it is the columns of queries, keys and values alone.
  Transformer grouped = model;
  grouped.kv_heads = 3;
  EXPECT_THAT(std::string(CheckDiagonal(grouped, *ParseGrid("c=2,r=2,z=2")).message()),
              HasSubstr("widths that c*z=4 divides, and qkv has one of 30"));
}

TEST(GridRulesTest, ScatteredActivationsCutRows) {
  const Transformer model = PlainTransformer("", 4, 48, 24);
  Training training{.batch = 6, .sequence = 2, .activations = ActivationForm::kScattered};
  EXPECT_EQ(FirstFailure(model, training, *ParseGrid("c=4")), GridRule::kRows);
  // A microbatch of 2 has 4 rows, of which r = 3 has no part; one of 6 has.
  EXPECT_EQ(FirstFailure(model, training, *ParseGrid("c=2,r=3")), std::nullopt);
  training.microbatch = 2;
  EXPECT_EQ(FirstFailure(model, training, *ParseGrid("c=2,r=3")), GridRule::kRows);
  training.activations = ActivationForm::kReplicated;
  EXPECT_EQ(FirstFailure(model, training, *ParseGrid("c=2,r=3")), std::nullopt);
}

TEST(GridRulesTest, UlyssesCutsHeadsAndExpertsAreCutEvenly) {
  Training training{.batch = 96, .sequence = 3072, .context = ContextMethod::kUlysses};
  EXPECT_EQ(FirstFailure(GroupedHeads(), training, *ParseGrid("r=4,context=2")), std::nullopt);
  EXPECT_EQ(FirstFailure(GroupedHeads(), training, *ParseGrid("r=4,context=4")),
            GridRule::kContextHeads);
  training.context = ContextMethod::kRing;
  EXPECT_EQ(FirstFailure(GroupedHeads(), training, *ParseGrid("r=4,context=4")), std::nullopt);
  Transformer experts = GroupedHeads();
  experts.experts = 8;
  experts.experts_per_token = 2;
  EXPECT_EQ(FirstFailure(experts, training, *ParseGrid("expert=8")), std::nullopt);
  EXPECT_EQ(FirstFailure(experts, training, *ParseGrid("expert=6")), GridRule::kExperts);
}

}  // namespace
}  // namespace crossmesh
