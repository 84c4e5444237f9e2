#include "planner/redistribute/redistribution_search.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/testing/redistribution_vectors.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

class VectorTest : public testing::TestWithParam<RedistributionVector> {};

TEST_P(VectorTest, BytesAreTheStatedOptimumOrFewer) {
  const RedistributionVector& vector = GetParam();
  const nlohmann::json& local = vector.json["local_bytes"];
  RedistributionOptions options{
      .objective = RedistributionObjective::kBytes,
      .local_bytes_max = std::max(local["src"].get<int64_t>(), local["dst"].get<int64_t>()),
      .relay = false};
  ASSERT_OK_AND_ASSIGN(const RedistributionResult result,
                       SearchRedistribution(vector.request, options));
  int64_t optimum = vector.json["optimal"]["bytes"];
  if (!vector.json["optimal_strided"].is_null()) {
    optimum = std::min(optimum, vector.json["optimal_strided"]["bytes"].get<int64_t>());
  }
  EXPECT_LE(result.derivation.bytes(), optimum) << result.derivation.Text();
  if (!vector.json["lower_bound"].is_null()) {
    EXPECT_EQ(result.derivation.bound_bytes(),
              vector.json["lower_bound"]["max_recv_bytes"].get<int64_t>());
  }
}

TEST_P(VectorTest, SecondsAreTheStatedOptimumOrFewer) {
  const RedistributionVector& vector = GetParam();
  const nlohmann::json& json = vector.json;
  const bool levels = json.contains("optimal_time") && !json["optimal_time"].is_null();
  const double optimum = json[levels ? "optimal_time" : "optimal"]["seconds"];
  const int64_t local = std::max(json["local_bytes"]["src"].get<int64_t>(),
                                 json["local_bytes"]["dst"].get<int64_t>());
  RedistributionOptions options{.cost = vector.cost, .local_bytes_max = local, .relay = false};
  ASSERT_OK_AND_ASSIGN(const RedistributionResult collectives,
                       SearchRedistribution(vector.request, options));
  EXPECT_LE(collectives.derivation.seconds(), optimum * (1 + 1e-9))
      << collectives.derivation.Text();
  // With relays it is never slower than the best of both.
  options.relay = true;
  ASSERT_OK_AND_ASSIGN(const RedistributionResult all,
                       SearchRedistribution(vector.request, options));
  EXPECT_LE(all.derivation.seconds(), collectives.derivation.seconds() * (1 + 1e-9));
  if (json["direct_p2p"].is_null()) return;
  EXPECT_LE(all.derivation.seconds(), json["direct_p2p"]["seconds"].get<double>() * (1 + 1e-9))
      << all.derivation.Text();
}

INSTANTIATE_TEST_SUITE_P(All, VectorTest, testing::ValuesIn(RedistributionVectors()),
                         [](const auto& vector) {
                           std::string name = vector.param.id;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace crossmesh
