// What the search finds beside single steps and the methods of the literature, all by its model.

#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/baselines/baselines.h"
#include "planner/redistribute/redistribution_search.h"
#include "planner/redistribute/testing/random_redistribution.h"

#include <cstdint>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// In the ratio of links inside hosts and between them; messages are cheap, or dear.
CollectiveCost TwoLevels(const RedistributionRequest& request, bool dear_messages) {
  const double second = dear_messages ? 1.0 : 1e-3;
  CollectiveCost cost{.seconds_per_step = 6 * second};
  for (int32_t axis = 0; axis < std::ssize(request.axes); ++axis) {
    cost.links.push_back({.part = {.axis = axis, .size = request.axes[axis].size},
                          .seconds_per_message = axis == 0 ? 3 * second : second,
                          .bytes_per_second = axis == 0 ? 20.0 : 100.0});
  }
  return cost;
}

// The only step, of whatever kind can be it, in so many seconds at least.
int64_t ExpectNoStepTakesLess(const Derivation& found, const CollectiveCost& cost) {
  const TypeSpace& space = found.space();
  const StepPrices prices(space, cost);
  int64_t compared = 0;
  for (const StepKind kind : {StepKind::kAllGather, StepKind::kAllToAll, StepKind::kPermute,
                              StepKind::kReduceScatter, StepKind::kAllReduce, StepKind::kRelay}) {
    absl::StatusOr<RedistributionStep> step =
        MakeStep(space, kind, {space.source(), space.destination()});
    if (!step.ok()) continue;
    prices.Price(*step);
    EXPECT_LE(found.seconds(), step->seconds * (1 + 1e-9)) << StepKindName(kind);
    ++compared;
  }
  return compared;
}

TEST(SearchBesideOthersTest, NoSingleStepAndNoMethodOfTheLiteratureTakesLess) {
  const uint64_t first = FromEnvironment("CROSSMESH_SEED", 1);
  const int64_t cases = RandomCases(400);
  int64_t steps = 0;
  int64_t methods = 0;
  for (uint64_t seed = first; seed < first + cases && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed, " CROSSMESH_CASES=1"));
    const RedistributionRequest request =
        RandomRedistribution(seed, {.devices_max = 24, .uneven = seed % 4 == 0});
    const CollectiveCost cost = TwoLevels(request, seed % 3 == 0);
    ASSERT_OK_AND_ASSIGN(const RedistributionResult by_time,
                         SearchRedistribution(request, {.cost = cost}));
    ASSERT_OK_AND_ASSIGN(
        const RedistributionResult by_bytes,
        SearchRedistribution(request, {.objective = RedistributionObjective::kBytes}));
    steps += ExpectNoStepTakesLess(by_time.derivation, cost);
    for (const RedistributionBaseline method : kRedistributionBaselines) {
      const absl::StatusOr<Derivation> other = PlanBaseline(method, request, cost);
      if (!other.ok()) continue;  // that it cannot say
      EXPECT_LE(by_time.derivation.seconds(), other->seconds() * (1 + 1e-9))
          << by_time.derivation.Text() << other->Text();
      EXPECT_LE(by_bytes.derivation.bytes(), other->bytes());
      ++methods;
    }
  }
  if (cases >= 400) {
    EXPECT_GT(steps, 200);
    EXPECT_GT(methods, 500);
  }
}

}  // namespace
}  // namespace crossmesh
