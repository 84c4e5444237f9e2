// Moves of the search are priced as the steps that they are.

#include "planner/redistribute/move_prices.h"

#include "common/mesh/shape.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/atom_sizes.h"
#include "planner/redistribute/testing/random_redistribution.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Of axes that do not leave a host, but for the first one. `rings` cost less than messages, and
// their sums too; else more.
CollectiveCost CostWithRings(const RedistributionRequest& request, bool rings_are_cheap) {
  CollectiveCost cost{.seconds_per_step = 8};
  RingCost rings{.seconds_per_step = rings_are_cheap ? 4.0 : 40.0,
                 .seconds_per_pass = 0.5,
                 .seconds_between_hosts = 1,
                 .bytes_per_second_max = 300,
                 .bytes_per_second_inside = 200,
                 .bytes_per_second_between_hosts = 100,
                 .hashed_bytes_per_second = 1000,
                 .adds = true};
  for (int32_t axis = 0; axis < std::ssize(request.axes); ++axis) {
    const SubAxis whole = {.axis = axis, .size = request.axes[axis].size};
    cost.links.push_back({.part = whole,
                          .seconds_per_message = axis == 0 ? 3.0 : 1.0,
                          .bytes_per_second = axis == 0 ? 50.0 : 100.0});
    if (axis > 0) rings.inside.push_back(whole);
  }
  cost.rings = rings;
  return cost;
}

// How many moves were what.
struct MoveCounts {
  int64_t messages = 0;
  int64_t collectives = 0;
};

void ExpectPricesOfSteps(const SearchSpace& space, const CollectiveCost& cost, MoveCounts& counts) {
  const TypeSpace& types = space.types();
  const StepPrices prices(types, cost);
  const MovePrices move_prices(space, prices);
  CollectiveCost without_rings = cost;
  without_rings.rings.reset();
  const StepPrices messages(types, without_rings);
  std::set<PackedType> seen = {space.source()};
  std::vector<PackedType> open = {space.source()};
  while (!open.empty() && seen.size() < 60) {
    const PackedType before = open.back();
    open.pop_back();
    std::vector<Move> moves;
    AppendMoves(MoveState(space, before), moves);
    for (const Move& move : moves) {
      if (seen.insert(move.after).second) open.push_back(move.after);
      ASSERT_OK_AND_ASSIGN(
          RedistributionStep step,
          MakeStep(types, move.kind, {space.Unpack(before), space.Unpack(move.after)}));
      const int64_t bytes = types.LocalBytes(step.before);
      EXPECT_DOUBLE_EQ(move_prices.Seconds(before, move, bytes, true), messages.SecondsOf(step));
      prices.Price(step);
      EXPECT_DOUBLE_EQ(move_prices.Seconds(before, move, bytes, false), step.seconds)
          << StepKindName(move.kind) << " " << types.Text(step.before) << " to "
          << types.Text(step.after);
      ++(step.is_nccl_collective ? counts.collectives : counts.messages);
    }
  }
}

TEST(MovePricesTest, MovesAreCollectivesWhereTheStepsAreAndCostTheSame) {
  const uint64_t first = FromEnvironment("CROSSMESH_SEED", 1);
  const int64_t cases = RandomCases(300);
  MoveCounts counts;
  for (uint64_t seed = first; seed < first + cases && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("CROSSMESH_SEED=", seed, " CROSSMESH_CASES=1"));
    const RedistributionRequest request =
        RandomRedistribution(seed, {.devices_max = 24, .uneven = seed % 3 == 0});
    const TypeSpace types(request, NeededAtoms(request));
    const std::optional<SearchSpace> space = SearchSpace::Create(types);
    if (!space.has_value()) continue;
    ExpectPricesOfSteps(*space, CostWithRings(request, seed % 2 == 0), counts);
  }
  if (cases >= 300) {
    EXPECT_GT(counts.messages, 1000);
    EXPECT_GT(counts.collectives, 300);
  }
}

// Rows over x are gathered, of which each device has its part of the columns.
MoveCounts CountsOfGatheredRows(int64_t columns) {
  RedistributionRequest request{.axes = {{"x", 2}, {"y", 2}}, .item_bytes = 4};
  request.shape = *Shape::Create({{8, columns}});
  request.source = {.dimensions = {{{.axis = 0, .size = 2}}, {{.axis = 1, .size = 2}}},
                    .rule = UnevenRule::kChunk};
  request.destination = request.source;
  request.destination.dimensions[0].clear();
  const TypeSpace types(request, NeededAtoms(request));
  MoveCounts counts;
  ExpectPricesOfSteps(*SearchSpace::Create(types), CostWithRings(request, true), counts);
  return counts;
}

TEST(MovePricesTest, BesideColumnsThatDoNotDivideAGatherOfRowsIsNoCollective) {
  EXPECT_GT(CountsOfGatheredRows(6).collectives, 0);
  const MoveCounts uneven = CountsOfGatheredRows(7);
  EXPECT_EQ(uneven.collectives, 0);
  EXPECT_GT(uneven.messages, 0);
}

}  // namespace
}  // namespace crossmesh
