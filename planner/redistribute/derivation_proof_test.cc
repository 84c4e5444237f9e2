#include "planner/redistribute/derivation_proof.h"

#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/atom_sizes.h"
#include "planner/redistribute/redistribution_search.h"
#include "planner/redistribute/testing/derivation_simulator.h"
#include "planner/redistribute/testing/random_redistribution.h"
#include "planner/redistribute/testing/redistribution_vectors.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

TEST(DerivationProofTest, EveryVectorIsProvenAndSimulatedWithAndWithoutRelays) {
  for (const RedistributionVector& vector : RedistributionVectors()) {
    for (const bool relay : {false, true}) {
      for (const auto objective :
           {RedistributionObjective::kBytes, RedistributionObjective::kSeconds}) {
        ASSERT_OK_AND_ASSIGN(
            const RedistributionResult result,
            SearchRedistribution(vector.request,
                                 {.objective = objective, .cost = vector.cost, .relay = relay}));
        EXPECT_OK(ProveDerivation(result.derivation)) << vector.id;
        EXPECT_OK(SimulateDerivation(result.derivation, 1)) << vector.id << "\n"
                                                            << result.derivation.Text();
      }
    }
  }
}

// A plan within a limit that is drawn for the seed, or nothing where there is none.
std::optional<RedistributionResult> SearchWithin(const RedistributionRequest& request,
                                                 uint64_t seed) {
  RedistributionOptions options{.objective = seed % 2 == 0 ? RedistributionObjective::kBytes
                                                           : RedistributionObjective::kSeconds,
                                .staging = {.bytes = static_cast<int64_t>(seed % 3 * 8)},
                                .relay = seed % 5 < 2,
                                .nodes_max = 4000};
  options.cost = {.seconds_per_step = 1e-6};
  for (size_t axis = 0; axis < request.axes.size(); ++axis) {
    options.cost.links.push_back({.part = {static_cast<int32_t>(axis), 1, request.axes[axis].size},
                                  .seconds_per_message = 1e-7,
                                  .bytes_per_second = axis == 0 ? 1e8 : 1e9});
  }
  absl::StatusOr<RedistributionResult> loose = SearchRedistribution(request, options);
  if (!loose.ok()) return std::nullopt;
  options.live_bytes_max = loose->derivation.peak_live_bytes() - static_cast<int64_t>(seed % 7);
  if (options.live_bytes_max < 1) options.live_bytes_max = 1;
  absl::StatusOr<RedistributionResult> tight = SearchRedistribution(request, options);
  if (!tight.ok()) {
    EXPECT_EQ(tight.status().code(), absl::StatusCode::kResourceExhausted) << tight.status();
    return *std::move(loose);
  }
  EXPECT_OK(ProveDerivation(
      tight->derivation, {.live_bytes_max = options.live_bytes_max, .staging = options.staging}));
  return *std::move(tight);
}

TEST(DerivationProofTest, RandomRequestsAreCarriedOutElementByElement) {
  const uint64_t first = FromEnvironment("CROSSMESH_TEST_SEED", 1);
  const int64_t cases = RandomCases(5000);
  printf("seeds %lu to %lu\n", static_cast<unsigned long>(first),
         static_cast<unsigned long>(first + cases - 1));
  int64_t found = 0;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(cases); ++seed) {
    const RedistributionRequest request =
        RandomRedistribution(seed, {.devices_max = 12, .elements_max = 300});
    ASSERT_OK(Validate(request)) << "seed " << seed;
    const std::optional<RedistributionResult> result = SearchWithin(request, seed);
    if (!result.has_value()) continue;
    ++found;
    ASSERT_OK(SimulateDerivation(result->derivation, seed)) << "seed " << seed << "\n"
                                                            << result->derivation.Text();
  }
  EXPECT_GT(found, cases * 9 / 10);
}

// A derivation of par-05: a reduce-scatter, an all-to-all, a gather.
class BrokenDerivationTest : public testing::Test {
 protected:
  BrokenDerivationTest() {
    const std::vector<RedistributionVector>& vectors = RedistributionVectors();
    const auto vector = std::ranges::find(vectors, "par-05", &RedistributionVector::id);
    space_ = std::make_shared<const TypeSpace>(vector->request, NeededAtoms(vector->request));
    const absl::StatusOr<RedistributionResult> result = SearchRedistribution(
        vector->request, {.objective = RedistributionObjective::kBytes, .relay = false});
    steps_ = result->derivation.steps();
  }

  absl::Status Prove(const DerivationLimits& limits = {}) const {
    return ProveDerivation(Derivation(space_, steps_, DerivationOrigin::kSearch), limits);
  }

  std::shared_ptr<const TypeSpace> space_;
  std::vector<RedistributionStep> steps_;
};

TEST_F(BrokenDerivationTest, AsItIsItIsProven) { EXPECT_OK(Prove()); }

TEST_F(BrokenDerivationTest, StepsThatDoNotComposeAreFound) {
  steps_.erase(steps_.begin() + 1);
  EXPECT_THAT(Prove(), StatusIs(absl::StatusCode::kInternal, HasSubstr("expected to begin with")));
}

TEST_F(BrokenDerivationTest, AnEndThatIsNotTheDestinationIsFound) {
  steps_.pop_back();
  EXPECT_THAT(Prove(), StatusIs(absl::StatusCode::kInternal, HasSubstr("expected to end with")));
}

TEST_F(BrokenDerivationTest, CostsThatAreNotTrueAreFound) {
  const std::vector<RedistributionStep> steps = steps_;
  steps_[0].bytes_received -= 4;
  EXPECT_THAT(Prove(), StatusIs(absl::StatusCode::kInternal, HasSubstr("received 64")));
  steps_ = steps;
  steps_[1].live_bytes += 1;
  EXPECT_THAT(Prove(), StatusIs(absl::StatusCode::kInternal, HasSubstr("live 128")));
  steps_ = steps;
  steps_[2].atoms.clear();
  EXPECT_THAT(Prove(), StatusIs(absl::StatusCode::kInternal, HasSubstr("expected group 2")));
}

TEST_F(BrokenDerivationTest, AStepOfAnotherKindIsFound) {
  steps_[1].kind = StepKind::kAllGather;
  EXPECT_THAT(Prove(), StatusIs(absl::StatusCode::kInternal, HasSubstr("all_gather")));
}

TEST_F(BrokenDerivationTest, WhatDoesNotFitIsFound) {
  EXPECT_OK(Prove({.live_bytes_max = 192, .local_bytes_max = 128}));
  EXPECT_THAT(Prove({.live_bytes_max = 191}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "peak of live bytes: expected at most 191, found 192"));
  EXPECT_THAT(Prove({.local_bytes_max = 127}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("largest local array")));
}

// The simulator sees what the proof sees.
TEST_F(BrokenDerivationTest, TheSimulatorFindsAWrongStep) {
  const auto simulate = [&] {
    return SimulateDerivation(Derivation(space_, steps_, DerivationOrigin::kSearch), 3);
  };
  EXPECT_OK(simulate());
  steps_[0].kind = StepKind::kSlice;  // sums are left out
  EXPECT_EQ(simulate().code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace crossmesh
