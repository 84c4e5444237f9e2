// A model's weights and moments go from grids to serving layouts, to stages and back, by ordinary
// reshards between daemons.

#include "common/mesh/manifest.h"
#include "common/mesh/mesh.h"
#include "common/testing/status_matchers.h"
#include "planner/parallelism/grid.h"
#include "planner/parallelism/layouts/grid_layouts.h"
#include "planner/parallelism/transformer.h"
#include "tests/live/live_cluster.h"
#include "tests/live/reshard_case.h"
#include "tests/live/running_reshard.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ContainsRegex;

constexpr char kEightDevices[] =
    "node-0.0,node-1.0,node-2.0,node-3.0,node-4.0,node-5.0,node-6.0,node-7.0";

// Such that a fourth of half a matrix's rows is not a whole number of them.
Transformer SmallLlama() {
  Transformer model = PlainTransformer("small", 2, 20, 2);
  model.vocabulary = 64;
  model.gated = true;
  model.tied = false;
  return model;
}

// Weights of 16 bits, with both moments of Adam.
Manifest StateOf(const Transformer& model) {
  std::vector<TensorSpec> tensors;
  const auto add = [&tensors](const std::string& name, std::vector<int64_t> shape) {
    const Shape of = Shape::Create(std::move(shape)).value();
    tensors.push_back({.name = name, .type = DataType::kBF16, .shape = of});
    for (const char* moment : {"exp_avg.", "exp_avg_sq."}) {
      tensors.push_back({.name = moment + name, .type = DataType::kF32, .shape = of});
    }
  };
  const int64_t width = model.hidden, inner = model.feed_forward;
  add("model.embed_tokens.weight", {model.vocabulary, width});
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string of_layer = absl::StrCat("model.layers.", layer, ".");
    for (const char* matrix : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      add(absl::StrCat(of_layer, "self_attn.", matrix, ".weight"), {width, width});
    }
    for (const char* matrix : {"gate_proj", "up_proj"}) {
      add(absl::StrCat(of_layer, "mlp.", matrix, ".weight"), {inner, width});
    }
    add(of_layer + "mlp.down_proj.weight", {width, inner});
    add(of_layer + "input_layernorm.weight", {width});
    add(of_layer + "post_attention_layernorm.weight", {width});
  }
  add("model.norm.weight", {width});
  add("lm_head.weight", {model.vocabulary, width});
  return Manifest::Create(std::move(tensors)).value();
}

struct Placing {
  std::string mesh;
  std::string rules;
  std::vector<std::string> replica_axes = {};
};

Placing OnGrid(const std::string& text, VectorForm vectors = VectorForm::kReplicated) {
  const Grid grid = ParseGrid(text).value();
  return {.mesh = ToString(WeightMesh(grid, ParseDevices(kEightDevices).value()).value()),
          .rules = RulesOfGrid(SmallLlama(), grid, WeightFamily::kLlama, vectors).value()};
}

// Two copies, each over three devices, which cut heads and words unevenly: the grids' devices in
// another order, and not all of them.
Placing Served() {
  return {.mesh = "replica=2,tp=3 on node-6.0,node-1.0,node-4.0,node-0.0,node-5.0,node-2.0",
          .rules =
              "*embed_tokens.weight  [tp, -] chunk\n"
              "*lm_head.weight       [tp, -] chunk\n"
              "*self_attn.o_proj.weight  [-, tp] chunk\n"
              "*mlp.down_proj.weight     [-, tp] chunk\n"
              "*_proj.weight         [tp, -] chunk\n"
              "*                     [...]\n",
          .replica_axes = {"replica"}};
}

class GridWeightsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::string> workers;
    for (int worker = 0; worker < 8; ++worker) workers.push_back(absl::StrCat("node-", worker));
    ASSERT_OK_AND_ASSIGN(cluster_, LiveCluster::Start({.workers = std::move(workers)}));
  }

  // Every element of every tile at the destination, which has others before.
  void ExpectToMove(const Placing& from, const Placing& to) {
    SCOPED_TRACE(absl::StrCat("from ", from.mesh, " to ", to.mesh));
    ++moves_;
    ASSERT_OK_AND_ASSIGN(
        const auto reshard,
        ReshardCase::Create({.manifest = StateOf(SmallLlama()),
                             .source = from.mesh,
                             .source_rules = from.rules,
                             .destination = to.mesh,
                             .destination_rules = to.rules,
                             .replica_axes = to.replica_axes,
                             .source_storage = absl::StrCat("before-", moves_),
                             .destination_storage = absl::StrCat("after-", moves_)},
                            *cluster_));
    ASSERT_FALSE(reshard->CheckAll(1).ok());
    ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                         Execute(cluster_->controller_address(), reshard->spec()));
    ASSERT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED) << operation.error();
    EXPECT_OK(reshard->CheckAll(1));
    EXPECT_EQ(reshard->receivers().size(), ParseMesh(to.mesh)->devices().size());
  }

  std::unique_ptr<LiveCluster> cluster_;
  int moves_ = 0;
};

TEST_F(GridWeightsTest, GoFromGridsToServingLayoutsAndStages) {
  const Placing shards = OnGrid("r=2,z=4");
  // They begin inside rows: the second one of each half has the last half of its third row first.
  ASSERT_THAT(shards.rules, ContainsRegex("q_proj.weight  .*\\[2:3, 10:20\\]"));
  const Placing stages = OnGrid("c=2,z=2,pipeline=2");
  const Placing cube = OnGrid("c=2,r=2,z=2", VectorForm::kDiagonal);
  ASSERT_NO_FATAL_FAILURE(ExpectToMove(shards, Served()));
  ASSERT_NO_FATAL_FAILURE(ExpectToMove(shards, stages));
  ASSERT_NO_FATAL_FAILURE(ExpectToMove(stages, Served()));
  ASSERT_NO_FATAL_FAILURE(ExpectToMove(cube, Served()));
  ASSERT_NO_FATAL_FAILURE(ExpectToMove(stages, cube));
  ASSERT_NO_FATAL_FAILURE(ExpectToMove(Served(), shards));
}

}  // namespace
}  // namespace crossmesh
