// Vectors of the cube, of the families of tensor parallelism, and of the closed-form seed.

#include "planner/parallelism/cluster_tables.h"
#include "planner/parallelism/published/tensor_families.h"
#include "planner/parallelism/testing/parallelism_vectors.h"

#include <algorithm>
#include <string>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using Json = nlohmann::json;

void ExpectCubeForm(const CubeProduct& product, CubeForm form, const Json& inputs,
                    const Json& expected) {
  const int64_t element = inputs["element_bytes"];
  const auto collectives = CollectivesOf(product, form);
  int64_t wire = 0;
  for (size_t i = 0; i < collectives.size(); ++i) {
    const CubeCollective& collective = collectives[i];
    const Json& wanted = expected["collectives"][i];
    SCOPED_TRACE(wanted.dump());
    EXPECT_EQ(absl::StrCat(collective.op, " ", collective.matrix), wanted["op"].get<std::string>());
    EXPECT_EQ(collective.line, wanted["axis"].get<std::string>());
    EXPECT_EQ(product.q, wanted["group"]);
    EXPECT_EQ(collective.shard_elements * element, wanted["local_shard_bytes"]);
    EXPECT_EQ(collective.message_elements * element, wanted["message_bytes"]);
    EXPECT_EQ(collective.wire_elements * element, wanted["wire_bytes"]);
    wire += collective.wire_elements * element;
    if (!wanted.contains("time_s")) continue;
    const RateLevel level{product.q, 0, inputs["beta_GBps"].get<double>() * kGB};
    const AxisRate rate(std::span(&level, 1), 0, RateSource::kTheory);
    EXPECT_TRUE(IsNear(rate.Seconds(CollectiveOp::kAllGather,
                                    static_cast<double>(collective.message_elements * element)),
                       wanted["time_s"], 1e-9));
  }
  EXPECT_EQ(wire, expected["wire_bytes"]);
}

TEST(FamilyVectorsTest, TheCubeHasItsShardsAndCollectives) {
  for (const ParallelismVector& v : ParallelismVectorsOf("cube_matmul")) {
    SCOPED_TRACE(v.id);
    const CubeProduct product{v.inputs["q"], v.inputs["M"], v.inputs["K"], v.inputs["N"]};
    const int64_t element = v.inputs["element_bytes"];
    EXPECT_TRUE(product.Validate().ok());
    const Json& shards = v.expected["shards"];
    EXPECT_EQ(Json(product.ShardOfA()), shards["A"]);
    EXPECT_EQ(Json(product.ShardOfB()), shards["B"]);
    EXPECT_EQ(Json(product.ShardOfC()), shards["C"]);
    const Json& forms = v.expected["forms"];
    ExpectCubeForm(product, CubeForm::kForward, v.inputs, forms["C=AB forward"]);
    ExpectCubeForm(product, CubeForm::kInputGradient, v.inputs, forms["C=AB^T input gradient"]);
    ExpectCubeForm(product, CubeForm::kWeightGradient, v.inputs, forms["C=A^TB weight gradient"]);
    EXPECT_EQ(product.ForwardElements() * element, v.expected["forward_bytes"]);
    EXPECT_EQ(product.ForwardElements() * element, v.expected["backward_bytes_keep_gathered"]);
    EXPECT_EQ(2 * product.ForwardElements() * element, v.expected["backward_bytes_regather"]);
    const int64_t devices = product.q * product.q * product.q;
    EXPECT_EQ(devices, v.inputs["processors"]);
    EXPECT_EQ(2 * product.m * product.k * product.n / devices,
              v.expected["flops_per_rank_forward"]);
    const Json& vector = v.expected["vector"];
    EXPECT_EQ(product.q * product.q, vector["owner_ranks"]);
    EXPECT_EQ(product.OwnedVectorElements() * element, vector["owned_bytes"]);
    EXPECT_EQ(product.UsedVectorElements() * element, vector["gathered_bytes"]);
    EXPECT_EQ(product.OwnedVectorElements() * element, vector["broadcast_message_bytes"]);
  }
}

TEST(FamilyVectorsTest, FamiliesSendWhatTheirDerivationsSay) {
  for (const ParallelismVector& v : ParallelismVectorsOf("tp_families")) {
    SCOPED_TRACE(v.id);
    const int64_t devices = v.inputs["processors"];
    const int64_t tokens = v.inputs["tokens"];
    const int64_t hidden = v.inputs["hidden"];
    const double element = v.inputs["element_bytes"];
    const std::vector<TensorFamily> families = TensorFamilies(devices, tokens, hidden);
    Json expected = v.expected["families"];
    EXPECT_EQ(families.size() + 1, expected.size());
    for (const TensorFamily& family : families) {
      SCOPED_TRACE(family.name);
      ASSERT_TRUE(expected.contains(family.name));
      const Json& wanted = expected[family.name];
      EXPECT_TRUE(IsNear(element * family.forward_elements, wanted["forward"], 1e-9));
      EXPECT_TRUE(IsNear(element * family.backward_elements, wanted["backward"], 1e-9));
      EXPECT_TRUE(IsNear(element * family.depth_sum_elements,
                         wanted.value("depth_gradient_all_reduce", 0.0), 1e-9));
      EXPECT_TRUE(IsNear(element * family.total(), wanted["total"], 1e-9));
    }
    const Json& best = expected["AxoNN best grid by bytes"];
    const Grid grid = LeastElementsGrid(devices, tokens, hidden);
    EXPECT_EQ(grid, GridOfJson(best));
    const BlockElements elements = ElementsOnGrid(grid, tokens, hidden);
    EXPECT_TRUE(IsNear(element * elements.forward, best["forward"], 1e-9));
    EXPECT_TRUE(IsNear(element * elements.backward, best["backward"], 1e-9));
    EXPECT_TRUE(IsNear(element * elements.total(), best["total"], 1e-9));
  }
}

TEST(FamilyVectorsTest, TheSeedIsTheMinimumOfItsFormula) {
  for (const ParallelismVector& v : ParallelismVectorsOf("grid_seed")) {
    SCOPED_TRACE(v.id);
    const int64_t degree = v.inputs["tensor_degree"];
    const int64_t tokens = v.inputs["tokens_per_data_group"];
    const int64_t hidden = v.inputs["hidden"];
    const GridSeed seed = SeedOf(degree, tokens, hidden);
    const Json& continuous = v.expected["continuous"];
    EXPECT_TRUE(IsNear(seed.c, continuous["c"], v.relative_tolerance));
    EXPECT_TRUE(IsNear(seed.r, continuous["r"], v.relative_tolerance));
    EXPECT_TRUE(IsNear(seed.z, continuous["z"], v.relative_tolerance));
    EXPECT_TRUE(IsNear(seed.depth_tokens, v.expected["pure_depth_wins_above_tokens"], 1e-9));
    const Grid best = LeastElementsGrid(degree, tokens, hidden);
    EXPECT_EQ(best, GridOfJson(v.expected["best_power_of_two"]));
    EXPECT_TRUE(IsNear(2 * ElementsOnGrid(best, tokens, hidden).total(),
                       v.expected["best_wire_bytes_per_block"], v.relative_tolerance));
  }
}

}  // namespace
}  // namespace crossmesh
