#include "planner/redistribute/collective_cost.h"

#include "common/testing/status_matchers.h"
#include "planner/redistribute/atom_sizes.h"
#include "planner/redistribute/testing/redistribution_vectors.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

const RedistributionVector& VectorOf(const std::string& id) {
  return *std::ranges::find(RedistributionVectors(), id, &RedistributionVector::id);
}

// The seconds that the vectors state for a step of all their atoms.
TEST(CollectiveCostTest, StepsTakeWhatTheVectorsState) {
  const auto seconds = [](const std::string& id, StepKind kind, int64_t local_bytes) {
    const RedistributionVector& vector = VectorOf(id);
    const TypeSpace space(vector.request, NeededAtoms(vector.request));
    std::vector<int32_t> atoms(space.atom_count());
    for (size_t i = 0; i < atoms.size(); ++i) atoms[i] = static_cast<int32_t>(i);
    return StepPrices(space, vector.cost).Seconds(kind, atoms, local_bytes);
  };
  EXPECT_DOUBLE_EQ(seconds("ag-01", StepKind::kAllGather, 128), 8.4040778548307e-06);
  EXPECT_DOUBLE_EQ(seconds("a2a-01", StepKind::kAllToAll, 256), 8.40203892741535e-06);
  EXPECT_DOUBLE_EQ(seconds("cp-01", StepKind::kPermute, 64), 7.200679642471784e-06);
  // Two levels: a permute and rings at the slow one, an all-to-all peer by peer.
  EXPECT_DOUBLE_EQ(seconds("hi-04", StepKind::kPermute, 33554432), 0.0016289745102104282);
  EXPECT_DOUBLE_EQ(seconds("hi-04", StepKind::kAllToAll, 33554432), 0.0009626604021975745);
  EXPECT_NEAR(seconds("hi-01", StepKind::kAllGather, 8388608), 2860e-6, 1e-6);
  EXPECT_NEAR(seconds("hi-05", StepKind::kAllReduce, 134217728), 11382e-6, 1e-6);
  EXPECT_EQ(seconds("ag-01", StepKind::kSlice, 128), 0);
}

TEST(CollectiveCostTest, RelaysTakeWhatTheVectorsStateForPointToPoint) {
  for (const RedistributionVector& vector : RedistributionVectors()) {
    const nlohmann::json& direct = vector.json["direct_p2p"];
    if (direct.is_null()) continue;
    const TypeSpace space(vector.request, NeededAtoms(vector.request));
    const absl::StatusOr<RedistributionStep> relay =
        MakeStep(space, StepKind::kRelay, {space.source(), space.destination()});
    ASSERT_OK(relay);
    const double seconds = StepPrices(space, vector.cost).SecondsOf(*relay);
    const double stated = direct["seconds"];
    EXPECT_LE(seconds, stated * (1 + 1e-9)) << vector.id;
    EXPECT_GE(seconds, stated * 0.95) << vector.id;
  }
}

TEST(CollectiveCostTest, APartOfAnAxisIsAsSlowAsTheLinksThatItCrosses) {
  RedistributionRequest request{.axes = {{"x", 8}}};
  request.shape = *Shape::Create(std::vector<int64_t>{8});
  request.source.dimensions = {{{.axis = 0, .size = 8}}};
  request.destination.dimensions = {{}};
  const TypeSpace space(request, PrimeAtoms(request, 1).front());
  const StepPrices prices(space, {.links = {{{0, 1, 4}, 2e-6, 1e9}, {{0, 4, 2}, 1e-6, 1e10}}});
  EXPECT_EQ(prices.level(0), 1);
  EXPECT_EQ(prices.level(1), 1);
  EXPECT_EQ(prices.level(2), 0);
  EXPECT_DOUBLE_EQ(prices.LeastSeconds(1000, 1, 1), 1e-6 + 1e-7);
  EXPECT_EQ(prices.LeastSeconds(0, 0, 0), 0);
}

}  // namespace
}  // namespace crossmesh
