// Vectors of AxoNN's communication model, and the times that the authors' helper printed.

#include "common/testing/paths.h"
#include "planner/parallelism/cluster_tables.h"
#include "planner/parallelism/published/axonn_model.h"
#include "planner/parallelism/published/published_models.h"
#include "planner/parallelism/testing/parallelism_vectors.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using Json = nlohmann::json;

CollectiveOp OpOf(const std::string& name) {
  for (const CollectiveOp op : {CollectiveOp::kAllGather, CollectiveOp::kReduceScatter,
                                CollectiveOp::kAllReduce, CollectiveOp::kAllToAll}) {
    if (CollectiveOpName(op) == name) return op;
  }
  ADD_FAILURE() << name;
  return CollectiveOp::kSend;
}

double UnitOf(const std::string& unit) { return unit == "GiB/s" ? kGiB : kGB; }

TEST(ParallelismVectorsTest, EveryKindHasATest) {
  std::map<std::string, int> kinds;
  for (const ParallelismVector& vector : ParallelismVectors()) ++kinds[vector.kind];
  // Each of these stands in a test of this folder.
  const std::map<std::string, int> tested = {
      {"ring_collective", 7},  {"axis_bandwidth", 3},     {"axonn_layer", 6},
      {"axonn_model", 8},      {"axonn_ranking", 6},      {"cube_matmul", 6},
      {"tp_families", 3},      {"grid_seed", 4},          {"memory_floor", 1},
      {"memory_megatron", 4},  {"memory_axonn", 3},       {"pipeline", 4},
      {"context_parallel", 3}, {"expert_parallel", 2},    {"zero_stages", 1},
      {"nccl_ring_time", 1},   {"percent_of_peak", 1},    {"weak_scaling", 1},
      {"step_flops", 1},       {"published_step_time", 1}};
  EXPECT_EQ(kinds, tested);
}

TEST(ParallelismVectorsTest, RingsSendAndTakeWhatTheLawSays) {
  for (const ParallelismVector& v : ParallelismVectorsOf("ring_collective")) {
    SCOPED_TRACE(v.id);
    const CollectiveOp op = OpOf(v.inputs["op"]);
    const int64_t group = v.inputs["group"];
    const double bytes = v.inputs["full_bytes"];
    const RateLevel level{group, v.inputs["alpha_s"], v.inputs["beta_GBps"].get<double>() * kGB};
    const AxisRate rate(std::span(&level, 1), 0, RateSource::kTheory);
    EXPECT_EQ(RingSteps(op, group), v.expected["steps"]);
    EXPECT_TRUE(IsNear(WireBytes(op, group, bytes), v.expected["wire_bytes"], 1e-9));
    EXPECT_TRUE(IsNear(rate.Seconds(op, bytes), v.expected["time_s"], v.relative_tolerance));
  }
}

TEST(ParallelismVectorsTest, PositionsHavePublishedRatesOrNone) {
  const std::vector<ParallelismVector> vectors = ParallelismVectorsOf("axis_bandwidth");
  ASSERT_EQ(vectors.size(), 3);
  for (const Json& row : vectors[0].expected["rows"]) {
    SCOPED_TRACE(row.dump());
    const auto cluster = FindCluster(row["cluster"].get<std::string>());
    ASSERT_TRUE(cluster.ok());
    const auto rate = (*cluster)->RateOf({row["inner_product"], row["group"]});
    ASSERT_TRUE(rate.has_value());
    EXPECT_TRUE(IsNear(*rate, row["bandwidth"].get<double>() * UnitOf(row["unit"]), 1e-9));
  }
  const Json& missing = vectors[1].inputs;
  EXPECT_EQ((*FindCluster(missing["cluster"].get<std::string>()))
                ->RateOf({missing["inner_product"], missing["group"]}),
            std::nullopt);
  // Two nodes of eight: a group of 16 / n has n groups beside it in its node.
  for (const Json& row : vectors[2].expected["rows"]) {
    const double predicted = SharedNodeRate({row["groups_sharing_the_node"], row["group"]}, 8, 0,
                                            vectors[2].inputs["beta_inter_GBps"]);
    const double measured = row["measured_busbw_GBps"];
    EXPECT_TRUE(IsNear(predicted, row["predicted_GBps"], 1e-6));
    EXPECT_NEAR(predicted / measured - 1, row["relative_error"].get<double>(), 1e-6);
  }
}

void ExpectCollectives(const AxonnCollectives& collectives, const Json& expected,
                       double tolerance) {
  ASSERT_EQ(expected.size(), collectives.size());
  for (const AxonnCollective& collective : collectives) {
    const Json& wanted = expected[std::string(collective.name)];
    EXPECT_EQ(CollectiveOpName(collective.op), wanted["op"].get<std::string>());
    EXPECT_EQ(GridAxisName(collective.axis), wanted["axis"].get<std::string>());
    EXPECT_EQ(collective.group, wanted["group"]);
    EXPECT_EQ(collective.count, wanted["count"].get<double>());
    EXPECT_TRUE(IsNear(collective.message_bytes, wanted["message_bytes"], tolerance));
    EXPECT_TRUE(IsNear(collective.wire_bytes, wanted["wire_bytes"], tolerance));
    EXPECT_TRUE(IsNear(collective.seconds, wanted["time_s"], tolerance)) << collective.name;
  }
}

TEST(ParallelismVectorsTest, LayersHaveThePapersCollectives) {
  for (const ParallelismVector& v : ParallelismVectorsOf("axonn_layer")) {
    SCOPED_TRACE(v.id);
    const Grid grid = GridOfJson(v.inputs["grid"]);
    const PublishedCluster& cluster = **FindCluster(v.inputs["cluster"].get<std::string>());
    const auto collectives = CollectivesOfLayer(
        {.rows = v.inputs["tokens"].get<double>() / static_cast<double>(grid.data()),
         .k = v.inputs["in_features"],
         .n = v.inputs["out_features"],
         .transposed = v.inputs["transposed"]},
        grid,
        {.forward_passes = v.inputs["forward_passes"],
         .weight_gathers = v.inputs["weight_all_gathers"],
         .activation_bytes = v.inputs["act_bytes"],
         .weight_bytes = v.inputs["weight_bytes"],
         .data_gradient_bytes = v.inputs["grad_bytes"]},
        cluster);
    ASSERT_TRUE(collectives.has_value());
    ExpectCollectives(*collectives, v.expected["collectives"], v.relative_tolerance);
    EXPECT_TRUE(IsNear(SecondsOf(*collectives), v.expected["total_time_s"], v.relative_tolerance));
    for (const auto& [axis, beta] : v.expected["beta"].items()) {
      const GridAxis named = *ParseGridAxis(axis);
      EXPECT_TRUE(IsNear(*cluster.RateOf({InnerSizes(grid, kGridOrder)[named], grid[named]}),
                         beta["value"].get<double>() * UnitOf(beta["unit"]), 1e-9));
    }
  }
}

AxonnRankingRequest RequestOf(const Json& inputs) {
  const PublishedModel model = *FindPublishedModel(inputs["model"].get<std::string>());
  return {.model = model.shape,
          .devices = inputs.value("gpus", 1),
          .batch = inputs["batch_sequences"],
          .sequence = inputs["sequence_length"],
          .tensor_degree_least = inputs.value("min_tensor_degree", 1)};
}

TEST(ParallelismVectorsTest, ModelsHaveTheCollectivesOfTheirBlocks) {
  constexpr const char* kNames[] = {"qkv", "attn_out", "mlp_in", "mlp_out"};
  for (const ParallelismVector& v : ParallelismVectorsOf("axonn_model")) {
    SCOPED_TRACE(v.id);
    const Grid grid = GridOfJson(v.inputs["grid"]);
    const PublishedCluster& cluster = **FindCluster(v.inputs["cluster"].get<std::string>());
    AxonnRankingRequest request = RequestOf(v.inputs);
    EXPECT_EQ(request.model.layers, v.inputs["layers"]);
    EXPECT_EQ(request.model.hidden, v.inputs["hidden"]);
    const auto rows =
        static_cast<double>(request.batch * request.sequence) / static_cast<double>(grid.data());
    const auto layers =
        LayersOfBlock(rows, static_cast<double>(request.model.hidden), MlpOutShape::kTrue);
    PerAxis<double> wire_bytes;
    for (int i = 0; i < kBlockMatrices; ++i) {
      const auto collectives = CollectivesOfLayer(layers[i], grid, kHelperCounts, cluster);
      ASSERT_TRUE(collectives.has_value());
      for (const AxonnCollective& collective : *collectives) {
        wire_bytes[collective.axis] += collective.wire_bytes;
      }
      ExpectCollectives(*collectives, v.expected["per_block"][kNames[i]], v.relative_tolerance);
    }
    for (const auto& [axis, bytes] : v.expected["wire_bytes_per_block_by_axis"].items()) {
      EXPECT_TRUE(IsNear(wire_bytes[*ParseGridAxis(axis)], bytes, v.relative_tolerance)) << axis;
    }
    for (const auto& [key, shape] : std::map<std::string, MlpOutShape>{
             {"step_communication_s", MlpOutShape::kTrue},
             {"step_communication_s_script_quirk", MlpOutShape::kQuirk}}) {
      ASSERT_TRUE(v.expected.contains(key)) << v.expected.dump().substr(0, 200);
      request.mlp_out = shape;
      EXPECT_TRUE(IsNear(*StepSecondsAsAxonn(request, grid, cluster), v.expected[key],
                         v.relative_tolerance));
    }
  }
}

void ExpectRanking(const std::vector<AxonnGrid>& ranked, const Json& expected, double tolerance) {
  ASSERT_EQ(ranked.size(), expected["candidates"]);
  for (size_t i = 0; i < expected["top5"].size(); ++i) {
    const Json& wanted = expected["top5"][i];
    EXPECT_EQ(ranked[i].grid, GridOfJson(wanted)) << i;
    EXPECT_TRUE(IsNear(ranked[i].seconds, wanted["step_communication_s"], tolerance));
  }
  EXPECT_TRUE(IsNear(ranked.back().seconds / ranked.front().seconds, expected["worst_over_best"],
                     tolerance));
  if (!expected.contains("place_of_authors_run_script_c1_r2_z256_data1")) return;
  const auto script =
      std::ranges::find(ranked, *ParseGrid("r=2,z=256"), [](const AxonnGrid& g) { return g.grid; });
  EXPECT_EQ(script - ranked.begin() + 1, expected["place_of_authors_run_script_c1_r2_z256_data1"]);
}

TEST(ParallelismVectorsTest, RankingsHaveTheirWinners) {
  for (const ParallelismVector& v : ParallelismVectorsOf("axonn_ranking")) {
    SCOPED_TRACE(v.id);
    const PublishedCluster& cluster = **FindCluster(v.inputs["cluster"].get<std::string>());
    AxonnRankingRequest request = RequestOf(v.inputs);
    EXPECT_EQ(request.tensor_degree_least,
              FindPublishedModel(request.model.name)->tensor_degree_least);
    ExpectRanking(RankAsAxonn(request, cluster), v.expected["corrected"], v.relative_tolerance);
    request.mlp_out = MlpOutShape::kQuirk;
    ExpectRanking(RankAsAxonn(request, cluster), v.expected["script_quirk"], v.relative_tolerance);
  }
}

TEST(ParallelismVectorsTest, AllGridsOfTheAuthorsHelperHaveItsTimesToTheLastDigits) {
  const Json file =
      Json::parse(std::ifstream(SourcePath("planner/parallelism/testdata/authors_grids.json")));
  size_t grids = 0;
  for (const Json& setting : file["settings"]) {
    const std::string id = setting["id"];
    SCOPED_TRACE(id);
    const auto vector = std::ranges::find(ParallelismVectors(), id, &ParallelismVector::id);
    ASSERT_NE(vector, ParallelismVectors().end());
    AxonnRankingRequest request = RequestOf(vector->inputs);
    request.mlp_out = MlpOutShape::kQuirk;
    std::map<Grid, double> ours;
    for (const auto& [grid, seconds] :
         RankAsAxonn(request, **FindCluster(vector->inputs["cluster"].get<std::string>()))) {
      ours[grid] = seconds;
    }
    ASSERT_EQ(ours.size(), setting["grids"].size());
    for (const Json& row : setting["grids"]) {
      const Grid grid = GridOfJson({{"c", row[0]}, {"r", row[1]}, {"z", row[2]}, {"data", row[3]}});
      ASSERT_TRUE(ours.contains(grid)) << grid;
      EXPECT_TRUE(IsNear(ours[grid], row[4], 4e-16)) << grid;
    }
    grids += ours.size();
  }
  EXPECT_EQ(grids, 1543);
}

TEST(ParallelismVectorsTest, FloorsOfMemoryAreTheLeastDegreesBelow24Gigabytes) {
  for (const ParallelismVector& v : ParallelismVectorsOf("memory_floor")) {
    for (const Json& row : v.expected["rows"]) {
      SCOPED_TRACE(row["model"]);
      PublishedModel model = *FindPublishedModel(row["model"].get<std::string>());
      model.shape.vocabulary = 0;
      const int64_t least = row["min_tensor_degree"];
      EXPECT_EQ(model.tensor_degree_least, least);
      EXPECT_EQ(Parameters(model.shape), row["parameters"]);
      const double state = v.inputs["bytes_per_parameter"].get<double>() *
                           static_cast<double>(Parameters(model.shape)) / 1e9;
      EXPECT_TRUE(IsNear(state / static_cast<double>(least), row["state_GB_at_min"], 1e-9));
      EXPECT_LT(state / static_cast<double>(least), 24);
      EXPECT_GT(2 * state / static_cast<double>(least), 24);
    }
  }
}

}  // namespace
}  // namespace crossmesh
