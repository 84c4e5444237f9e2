#include "planner/redistribute/layout_search.h"

#include "planner/redistribute/atom_sizes.h"
#include "planner/redistribute/search_space.h"
#include "planner/redistribute/testing/redistribution_study.h"

#include <cstdint>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int64_t kEnough = 1'000'000;

// The two axes of 2x3 devices change places, for which there are many steps.
RedistributionRequest AxesThatChangePlaces() {
  const StudiedMesh mesh = StudiedMeshes()[1];
  RedistributionRequest request = mesh.Request(0, 1);
  request.source.dimensions = {{{.axis = 0, .size = 2}}, {{.axis = 1, .size = 3}}};
  request.destination.dimensions = {{{.axis = 1, .size = 3}}, {{.axis = 0, .size = 2}}};
  return request;
}

class LayoutSearchTest : public testing::Test {
 protected:
  LayoutSearch SearchOf(int64_t nodes) {
    return {space_, prices_, estimate_, {.nodes_max = nodes}};
  }

  const RedistributionRequest request_ = AxesThatChangePlaces();
  const TypeSpace types_{request_, NeededAtoms(request_)};
  const SearchSpace space_ = *SearchSpace::Create(types_);
  const StepPrices prices_{types_, CollectiveCost{}};
  PathEstimate estimate_{space_, prices_, PathObjective::kBytes};
};

TEST_F(LayoutSearchTest, ASearchThatGoesOnFindsWhatALongerOneFinds) {
  const std::optional<LayoutPath> best = SearchOf(kEnough).Run();
  ASSERT_TRUE(best.has_value());
  LayoutSearch cut_off = SearchOf(1);
  ASSERT_FALSE(cut_off.Run().has_value());
  ASSERT_TRUE(cut_off.budget_spent());
  const std::optional<LayoutPath> found = cut_off.GoOn(kEnough, std::nullopt);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->cost.objective, best->cost.objective);
}

TEST_F(LayoutSearchTest, ASearchWithoutAPathGoesOnOnlyForOneThatCostsLess) {
  const std::optional<LayoutPath> best = SearchOf(kEnough).Run();
  ASSERT_TRUE(best.has_value());
  LayoutSearch cut_off = SearchOf(1);
  ASSERT_FALSE(cut_off.Run().has_value());
  EXPECT_FALSE(cut_off.GoOn(kEnough, best->cost).has_value());
}

}  // namespace
}  // namespace crossmesh
