// Tiles of grids, element by element, beside who is to have an element by the definition of the
// axes. CROSSMESH_SEED and CROSSMESH_CASES choose what is run.

#include "planner/parallelism/layouts/grid_layouts.h"

#include "common/mesh/layout_rules.h"
#include "common/plan/testing/random_source.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/parallelism/layouts/stored_tensors.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_replace.h>
#include <gmock/gmock.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

Transformer SmallModel(WeightFamily family) {
  Transformer model = PlainTransformer("small", 4, 24, 6);
  model.vocabulary = 36;
  model.feed_forward = 48;
  if (family == WeightFamily::kLlama) {
    model.tied = false;
    model.gated = true;
  }
  return model;
}

std::vector<DeviceId> Devices(int64_t count) {
  std::vector<DeviceId> devices;
  for (int32_t i = 0; i < count; ++i) devices.push_back({absl::StrCat("h", i / 64), i % 64});
  return devices;
}

Grid RandomGrid(RandomSource& random, const Transformer& model) {
  Grid grid;
  grid[GridAxis::kC] = random.Pick<int64_t>({1, 2, 3, 4});
  grid[GridAxis::kR] = random.Pick<int64_t>({1, 2, 3, 6});
  grid[GridAxis::kZ] = random.Pick<int64_t>({1, 2, 4, 8});
  grid[GridAxis::kData] = random.Between(1, 2);
  grid[GridAxis::kPipeline] = random.Pick<int64_t>({1, 2, 4});
  if (model.experts > 0) grid[GridAxis::kExpert] = random.Pick<int64_t>({1, 2, 4});
  return grid;
}

// Of what is cut: what the slot is to have, an element after the other as they are stored.
class PlainOwner {
 public:
  PlainOwner(const StoredTensor& tensor, const Grid& grid, VectorForm vectors)
      : tensor_(tensor), grid_(grid), vectors_(vectors) {}

  // The coordinate on an axis that cuts a dimension, of one of its indices.
  int64_t Coordinate(size_t dimension, int64_t index) const {
    const StoredDimension& d = tensor_.dimensions[dimension];
    if (!d.axis.has_value()) return 0;
    const int64_t part = d.length / d.parts;
    return index % part / (part / grid_[*d.axis]);
  }

  std::vector<std::pair<int64_t, int64_t>> Elements(int64_t c, int64_t r, int64_t z) const {
    const bool has_columns = tensor_.dimensions.size() > 1;
    const bool is_on_diagonal =
        vectors_ == VectorForm::kDiagonal && !has_columns && tensor_.dimensions[0].axis.has_value();
    if (is_on_diagonal && c != r) return {};
    const int64_t columns = has_columns ? tensor_.dimensions[1].length : 1;
    const StoredDimension& last = tensor_.dimensions.back();
    const bool cut = last.axis.has_value() && grid_[*last.axis] > 1;
    const int64_t part = last.length / (cut ? last.parts : 1);
    std::vector<std::pair<int64_t, int64_t>> block;
    for (int64_t row = 0; row < tensor_.dimensions.front().length; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        if (!Has(0, row, c, r) || (has_columns && !Has(1, column, c, r))) continue;
        block.emplace_back(row, column);
      }
    }
    // Parts one after the other.
    std::ranges::stable_sort(block, {}, [&](const std::pair<int64_t, int64_t>& element) {
      return (has_columns ? element.second : element.first) / part;
    });
    if (!tensor_.is_matrix && !is_on_diagonal) return block;
    const int64_t share = std::ssize(block) / grid_.z();
    return {block.begin() + z * share, block.begin() + (z + 1) * share};
  }

 private:
  bool Has(size_t dimension, int64_t index, int64_t c, int64_t r) const {
    const std::optional<GridAxis> axis = tensor_.dimensions[dimension].axis;
    return !axis.has_value() || Coordinate(dimension, index) == (*axis == GridAxis::kC ? c : r);
  }

  const StoredTensor& tensor_;
  const Grid& grid_;
  const VectorForm vectors_;
};

std::vector<std::pair<int64_t, int64_t>> ElementsOf(const Tile& tile) {
  std::vector<std::pair<int64_t, int64_t>> elements;
  for (const Box& box : tile) {
    for (int64_t row = box[0].begin; row < box[0].end; ++row) {
      if (box.rank() == 1) elements.emplace_back(row, 0);
      if (box.rank() == 1) continue;
      for (int64_t column = box[1].begin; column < box[1].end; ++column) {
        elements.emplace_back(row, column);
      }
    }
  }
  return elements;
}

int64_t CoordinateOf(const Mesh& mesh, int64_t slot, const char* axis) {
  const std::optional<int> found = mesh.FindAxis(axis);
  return found.has_value() ? mesh.Coordinate(slot, *found) : 0;
}

// A grid, and how vectors lie on it.
struct Spread {
  Grid grid;
  VectorForm vectors = VectorForm::kReplicated;
};

void ExpectTiles(const StoredTensor& tensor, const Spread& spread, const Mesh& mesh,
                 const RuleMatch& match) {
  const absl::StatusOr<Mesh> holders = mesh.Select(match.coordinates);
  ASSERT_OK(holders);
  std::vector<int64_t> lengths;
  for (const StoredDimension& dimension : tensor.dimensions) lengths.push_back(dimension.length);
  const absl::StatusOr<Shape> shape = Shape::Create(lengths);
  ASSERT_OK(shape);
  ASSERT_OK(match.layout.Validate(*holders, *shape));
  const std::vector<Tile> tiles = match.layout.Tiles(*holders, *shape);
  for (int64_t slot = 0; slot < holders->slots(); ++slot) {
    ASSERT_EQ(ElementsOf(tiles[slot]),
              PlainOwner(tensor, spread.grid, spread.vectors)
                  .Elements(CoordinateOf(*holders, slot, "c"), CoordinateOf(*holders, slot, "r"),
                            CoordinateOf(*holders, slot, "z")))
        << tensor.pattern << " at slot " << slot << " of " << *holders << ": " << match.layout;
  }
}

void ExpectEveryTile(const Transformer& model, const Spread& spread, WeightFamily family,
                     RandomSource& random) {
  const Grid& grid = spread.grid;
  const absl::StatusOr<std::string> text = RulesOfGrid(model, grid, family, spread.vectors);
  ASSERT_OK(text);
  const absl::StatusOr<LayoutRules> rules = LayoutRules::Parse(*text);
  ASSERT_OK(rules) << *text;
  const absl::StatusOr<Mesh> mesh = WeightMesh(grid, Devices(grid.devices()));
  ASSERT_OK(mesh);
  for (StoredTensor& tensor : StoredTensors(model, family)) {
    const int64_t layer = random.Below(model.layers);
    const int64_t expert = random.Below(std::max<int64_t>(model.experts, 1));
    if (tensor.dimensions.front().length == 0) tensor.dimensions.front().length = 10;  // positions
    const std::string name =
        absl::StrReplaceAll(tensor.pattern, {{"*layers", "exp_avg.model.layers"},
                                             {"*", "model"},
                                             {"?", "2"},
                                             {"{l}", absl::StrCat(layer)},
                                             {"{e}", absl::StrCat(expert)}});
    const absl::StatusOr<RuleMatch> match =
        rules->Match(name, static_cast<int>(tensor.dimensions.size()));
    ASSERT_OK(match) << name;
    Coordinates expected;
    if (grid.pipeline() > 1) {
      const int64_t stage = tensor.place == StoredPlace::kLayer
                                ? layer * grid.pipeline() / model.layers
                            : tensor.place == StoredPlace::kFirstStage ? 0
                                                                       : grid.pipeline() - 1;
      expected.emplace_back("pipeline", stage);
    }
    if (tensor.of_experts && grid.expert() > 1) {
      expected.emplace_back("expert", expert * grid.expert() / model.experts);
    }
    EXPECT_EQ(match->coordinates, expected) << name;
    ASSERT_NO_FATAL_FAILURE(ExpectTiles(tensor, spread, *mesh, *match));
  }
}

TEST(GridLayoutsTest, EverySlotHasWhatItsCoordinatesSay) {
  const uint64_t seed = FromEnvironment("CROSSMESH_SEED", 1);
  const int64_t cases = RandomCases(24);
  for (int64_t i = 0; i < cases && !HasFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed + i, " CROSSMESH_CASES=1"));
    RandomSource random(seed + i);
    const WeightFamily family = random.OneIn(2) ? WeightFamily::kLlama : WeightFamily::kGpt2;
    Transformer model = SmallModel(family);
    if (family == WeightFamily::kLlama && random.OneIn(2)) {
      model.experts = 8;
      model.experts_per_token = 2;
    }
    const Grid grid = RandomGrid(random, model);
    SCOPED_TRACE(ToString(grid));
    ExpectEveryTile(model, {grid}, family, random);
  }
}

TEST(GridLayoutsTest, VectorsMayLieOnTheDiagonal) {
  RandomSource random(1);
  for (const char* text : {"c=2,r=2,z=2", "c=2,r=2,z=3,data=2", "c=3,r=3,pipeline=2",
                           "c=2,r=2,z=2,data=2,pipeline=2", "z=4,data=2"}) {
    SCOPED_TRACE(text);
    for (const WeightFamily family : {WeightFamily::kLlama, WeightFamily::kGpt2}) {
      ExpectEveryTile(SmallModel(family), {*ParseGrid(text), VectorForm::kDiagonal}, family,
                      random);
    }
  }
}

TEST(GridLayoutsTest, TextsAreAsShort) {
  const absl::StatusOr<Grid> grid = ParseGrid("c=2,r=2,z=2,pipeline=2");
  ASSERT_OK(grid);
  const absl::StatusOr<std::string> llama =
      RulesOfGrid(SmallModel(WeightFamily::kLlama), *grid, WeightFamily::kLlama);
  ASSERT_OK(llama);
  EXPECT_THAT(*llama, HasSubstr("*embed_tokens.weight  [-, c]  on pipeline=0\n"));
  EXPECT_THAT(*llama,
              HasSubstr("*layers.{l}.self_attn.q_proj.weight  [r*z, c]  on pipeline={l}/2\n"));
  EXPECT_THAT(*llama, HasSubstr("*layers.{l}.mlp.down_proj.weight  [c*z, r]  on pipeline={l}/2\n"));
  EXPECT_THAT(*llama, HasSubstr("*lm_head.weight  [r*z, c]  on pipeline=1\n"));
  const absl::StatusOr<std::string> gpt2 =
      RulesOfGrid(SmallModel(WeightFamily::kGpt2), *grid, WeightFamily::kGpt2);
  ASSERT_OK(gpt2);
  EXPECT_THAT(*gpt2, HasSubstr("*h.{l}.mlp.c_fc.weight  [c*z, r]  on pipeline={l}/2\n"));
  // Queries, keys and values of half of the heads each.
  EXPECT_THAT(*gpt2, HasSubstr("*h.{l}.attn.c_attn.bias  {[0:12] [24:36] [48:60];"));
  EXPECT_THAT(*gpt2, Not(HasSubstr("lm_head")));
}

TEST(GridLayoutsTest, OneDeviceHasAll) {
  const absl::StatusOr<std::string> rules =
      RulesOfGrid(SmallModel(WeightFamily::kGpt2), Grid{}, WeightFamily::kGpt2);
  ASSERT_OK(rules);
  EXPECT_THAT(*rules, HasSubstr("*h.{l}.attn.c_attn.weight  [-, -]\n"));
  EXPECT_EQ(WeightMesh(Grid{}, Devices(1))->rank(), 0);
}

TEST(GridLayoutsTest, ModelsInFilesAreMatchedWhole) {
  const auto layouts = [](WeightFamily family, bool experts) {
    Transformer model = SmallModel(family);
    if (experts) model.experts = model.experts_per_token = 2;
    return *LayoutRules::Parse(*RulesOfGrid(model, *ParseGrid("c=2,r=2"), family));
  };
  for (const char* name : {"model.embed_tokens.weight", "model.layers.3.self_attn.q_norm.weight",
                           "model.layers.3.input_layernorm.weight", "model.norm.weight",
                           "model.layers.3.self_attn.v_proj.bias"}) {
    EXPECT_OK(
        layouts(WeightFamily::kLlama, false).Match(name, absl::StrContains(name, "embed") ? 2 : 1))
        << name;
  }
  for (const char* name :
       {"model.layers.1.mlp.gate.weight", "model.layers.1.mlp.experts.1.down_proj.weight",
        "model.layers.1.block_sparse_moe.experts.0.w3.weight",
        "model.layers.1.block_sparse_moe.gate.weight"}) {
    EXPECT_OK(layouts(WeightFamily::kLlama, true).Match(name, 2)) << name;
  }
  for (const char* name : {"wpe.weight", "transformer.h.11.mlp.c_proj.weight", "wte.weight"}) {
    EXPECT_OK(layouts(WeightFamily::kGpt2, false).Match(name, 2)) << name;
  }
}

TEST(GridLayoutsTest, WhatDoesNotDivideIsRefusedByName) {
  const Transformer model = SmallModel(WeightFamily::kLlama);
  const auto refusal = [&](const char* grid) {
    return RulesOfGrid(model, *ParseGrid(grid), WeightFamily::kLlama).status();
  };
  EXPECT_THAT(refusal("c=5"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("*embed_tokens.weight: expected a multiple of 5")));
  EXPECT_THAT(refusal("pipeline=3"), StatusIs(absl::StatusCode::kInvalidArgument,
                                              "pipeline=3: expected one that divides 4 layers"));
  EXPECT_THAT(refusal("expert=2"), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("expert=2: expected one that divides")));
  EXPECT_THAT(refusal("z=16,data=4096"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 65536 boxes")));
  EXPECT_THAT(refusal("z=7"), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("z=7: expected one that divides")));
  EXPECT_THAT(RulesOfGrid(model, *ParseGrid("c=2"), WeightFamily::kLlama, VectorForm::kDiagonal),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("need c = r")));
  EXPECT_FALSE(WeightMesh(*ParseGrid("c=2"), Devices(3)).ok());
  EXPECT_THAT(ParseWeightFamily("bert"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected llama or gpt2, found 'bert'")));
}

}  // namespace
}  // namespace crossmesh
