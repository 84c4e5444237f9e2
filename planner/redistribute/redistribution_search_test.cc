#include "planner/redistribute/redistribution_search.h"

#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/atom_sizes.h"
#include "planner/redistribute/derivation_proof.h"
#include "planner/redistribute/local_type.h"
#include "planner/redistribute/testing/derivation_simulator.h"
#include "planner/redistribute/testing/random_redistribution.h"
#include "planner/redistribute/testing/redistribution_vectors.h"

#include <algorithm>
#include <cstdint>
#include <utility>

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

RedistributionRequest SmallRequest() {
  RedistributionRequest request{.axes = {{"x", 2}, {"y", 4}}, .item_bytes = 4};
  request.shape = *Shape::Create(std::vector<int64_t>{8, 8});
  request.source.dimensions = {{{.axis = 0, .size = 2}}, {{.axis = 1, .size = 4}}};
  request.destination.dimensions = {{{.axis = 1, .size = 4}}, {{.axis = 0, .size = 2}}};
  return request;
}

TEST(RedistributionSearchTest, LimitsOfNoBytesAreRefused) {
  EXPECT_THAT(SearchRedistribution(SmallRequest(), {.live_bytes_max = 0}),
              IsRefused("cap on live bytes: expected at least 1 byte, found 0"));
  EXPECT_THAT(SearchRedistribution(SmallRequest(), {.local_bytes_max = 0}),
              IsRefused("cap on a local array: expected at least 1 byte, found 0"));
}

TEST(RedistributionSearchTest, BelowTheLeastFeasibleLimitItIsNamedAndSuffices) {
  for (const bool relay : {false, true}) {
    RedistributionOptions options{.live_bytes_max = 63, .staging = {.bytes = 16}, .relay = relay};
    EXPECT_THAT(SearchRedistribution(SmallRequest(), options),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         "cap on live bytes: expected at least 80, found 63"));
    options.live_bytes_max = 79;
    EXPECT_FALSE(SearchRedistribution(SmallRequest(), options).ok());
    options.live_bytes_max = 80;
    EXPECT_OK(SearchRedistribution(SmallRequest(), options));
  }
}

TEST(RedistributionSearchTest, EqualRequestsGiveEqualTexts) {
  for (uint64_t seed = 1; seed < 100; ++seed) {
    const RedistributionRequest request = RandomRedistribution(seed, {});
    const absl::StatusOr<RedistributionResult> first = SearchRedistribution(request);
    const absl::StatusOr<RedistributionResult> second = SearchRedistribution(request);
    ASSERT_OK(first) << seed;
    ASSERT_OK(second) << seed;
    EXPECT_EQ(first->derivation.Text(), second->derivation.Text());
  }
}

// Without a budget the relay is left, and it is said.
TEST(RedistributionSearchTest, WithoutABudgetItIsARelayAndSaysSo) {
  const std::vector<RedistributionVector>& vectors = RedistributionVectors();
  const auto gather = std::ranges::find(vectors, "hi-01", &RedistributionVector::id);
  ASSERT_NE(gather, vectors.end());
  ASSERT_OK_AND_ASSIGN(
      const RedistributionResult result,
      SearchRedistribution(gather->request, {.cost = gather->cost, .nodes_max = 0}));
  ASSERT_EQ(result.derivation.steps().size(), 1U);
  EXPECT_EQ(result.derivation.steps().front().kind, StepKind::kRelay);
  EXPECT_EQ(result.derivation.origin(), DerivationOrigin::kBudget);
}

constexpr RandomRedistributionLimits kLarge{.axes = 5,
                                            .dimensions = 5,
                                            .devices_max = 4096,
                                            .elements_max = int64_t{1} << 40,
                                            .exact_counts = true,
                                            .partial = false,
                                            .uneven = false};

TEST(RedistributionSearchTest, WithoutABudgetAndWithoutRelaysAPathIsFoundInHaste) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const RedistributionRequest request = RandomRedistribution(seed, kLarge);
    ASSERT_OK_AND_ASSIGN(
        const RedistributionResult result,
        SearchRedistribution(
            request,
            {.objective = RedistributionObjective::kBytes, .relay = false, .nodes_max = 0}));
    EXPECT_OK(ProveDerivation(result.derivation)) << seed;
    if (result.derivation.origin() == DerivationOrigin::kBudget) continue;
    // What was found costs as little as the estimate of the source says.
    ASSERT_OK_AND_ASSIGN(
        const RedistributionResult best,
        SearchRedistribution(request,
                             {.objective = RedistributionObjective::kBytes, .relay = false}));
    EXPECT_EQ(result.derivation.bytes(), best.derivation.bytes()) << seed;
  }
}

// Where latency decides, estimates have to count steps and messages.
TEST(RedistributionSearchTest, OnLargeMeshesMostSearchesByTimeEndWithinTheBudget) {
  int by_budget = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const RedistributionRequest request = RandomRedistribution(seed, kLarge);
    CollectiveCost cost{.seconds_per_step = 6.6e-6};
    for (int32_t axis = 0; axis < 5; ++axis) {
      cost.links.push_back({{axis, 1, request.axes[axis].size}, 0.6e-6, 94e9});
    }
    ASSERT_OK_AND_ASSIGN(const RedistributionResult result,
                         SearchRedistribution(request, {.cost = cost}));
    by_budget += result.derivation.origin() == DerivationOrigin::kBudget ? 1 : 0;
  }
  EXPECT_LE(by_budget, 4);
}

// Requests whose search the budget ended with up to 2.22 times the bytes of the best path known.
TEST(RedistributionSearchTest, WhatTheBudgetEndsIsTheBestThatIsKnown) {
  const std::pair<uint64_t, int64_t> best_bytes[] = {
      {30, 2816}, {96, 32064}, {118, 112896}, {159, 92672}};
  for (const auto& [seed, bytes] : best_bytes) {
    const RedistributionRequest request = RandomRedistribution(seed, kLarge);
    const TypeSpace space(request, NeededAtoms(request));
    ASSERT_OK_AND_ASSIGN(
        const RedistributionResult result,
        SearchRedistribution(request,
                             {.objective = RedistributionObjective::kBytes,
                              .local_bytes_max = std::max(space.LocalBytes(space.source()),
                                                          space.LocalBytes(space.destination())),
                              .relay = false}));
    EXPECT_LE(result.derivation.bytes(), bytes) << "seed " << seed;
  }
}

TEST(RedistributionSearchTest, ADimensionThatDoesNotDivideAndStaysIsLeftAlone) {
  RedistributionRequest request = SmallRequest();
  request.axes.push_back({"z", 2});
  request.shape = *Shape::Create(std::vector<int64_t>{8, 8, 5});
  request.source.rule = request.destination.rule = UnevenRule::kChunk;
  request.source.dimensions.push_back({{.axis = 2, .size = 2}});
  request.destination.dimensions.push_back({{.axis = 2, .size = 2}});
  ASSERT_OK_AND_ASSIGN(const RedistributionResult result,
                       SearchRedistribution(request, {.relay = false}));
  EXPECT_EQ(result.derivation.origin(), DerivationOrigin::kSearch);
  EXPECT_OK(SimulateDerivation(result.derivation, 1));
  request.destination.dimensions.back().clear();
  ASSERT_OK_AND_ASSIGN(const RedistributionResult uneven,
                       SearchRedistribution(request, {.relay = false}));
  EXPECT_EQ(uneven.derivation.origin(), DerivationOrigin::kUneven);
  EXPECT_OK(SimulateDerivation(uneven.derivation, 1));
}

}  // namespace
}  // namespace crossmesh
