#include "planner/redistribute/derivation_proof.h"

#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/redistribution_search.h"
#include "planner/redistribute/testing/derivation_simulator.h"
#include "planner/redistribute/testing/random_redistribution.h"
#include "planner/redistribute/testing/redistribution_vectors.h"

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

}  // namespace
}  // namespace crossmesh
