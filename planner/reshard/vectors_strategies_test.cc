// What strategies make of tests/data/cross_mesh_vectors.json.

#include "common/testing/status_matchers.h"
#include "planner/network/port_load.h"
#include "planner/reshard/published/broadcast.h"
#include "planner/reshard/published/global_all_gather.h"
#include "planner/reshard/published/local_all_gather.h"
#include "planner/reshard/published/send_recv.h"
#include "planner/reshard/published/slices.h"
#include "planner/reshard/relay_strategy.h"
#include "planner/reshard/testing/cross_mesh_vectors.h"
#include "planner/reshard/testing/problem_fixture.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::StartsWith;
using Json = nlohmann::json;

// Each port's bytes are those of the vector, give or take `allowance`.
void ExpectBytes(const std::vector<int64_t>& bytes, const Json& expected, int64_t allowance) {
  for (size_t place = 0; place < bytes.size(); ++place) {
    const std::string id = absl::StrCat(place);
    const double want = expected.contains(id) ? FractionOf(expected[id]).ToDouble() : 0;
    EXPECT_LE(std::abs(static_cast<double>(bytes[place]) - want), static_cast<double>(allowance))
        << "place " << place << ": " << bytes[place] << ", expected " << want;
  }
}

void ExpectLoads(const CrossMeshVector& v, const ProblemFixture& fixture, const Routes& routes,
                 absl::string_view name, int64_t allowance) {
  const PortLoad load = ComputePortLoad(*v.tensors, fixture.network, routes);
  const Json& expected = v.json["strategies"][std::string(name)];
  ExpectBytes(load.host_out, expected["out"], allowance);
  ExpectBytes(load.host_in, expected["in"], allowance);
  if (v.has_racks()) {
    ExpectBytes(load.rack_up, expected["up"], allowance);
    ExpectBytes(load.rack_down, expected["down"], allowance);
  }
  if (allowance > 0) return;
  EXPECT_DOUBLE_EQ(FindBusiestPort(load, fixture.network).seconds,
                   FractionOf(expected["busiest"]).ToDouble());
}

TEST(VectorsStrategiesTest, SendRecvLoadsThePorts) {
  for (const CrossMeshVector& v : CrossMeshVectors()) {
    SCOPED_TRACE(v.id);
    const ProblemFixture fixture(*v.tensors, v.topology);
    ASSERT_OK_AND_ASSIGN(const Routes routes, RouteBySendRecv(fixture.problem()));
    ExpectLoads(v, fixture, routes, "send_recv", 0);
  }
}

TEST(VectorsStrategiesTest, LocalAllGatherSendsOneCopyToEachHost) {
  for (const CrossMeshVector& v : CrossMeshVectors()) {
    SCOPED_TRACE(v.id);
    const ProblemFixture fixture(*v.tensors, v.topology);
    ASSERT_OK_AND_ASSIGN(const Routes routes, RouteByLocalAllGather(fixture.problem()));
    ExpectLoads(v, fixture, routes, "one_copy_per_host", 0);
  }
}

// Parts are cut between elements: exact where all slices divide evenly, else one element for every
// hop of every slice that does not.
int64_t RoundingOfParts(const Slices& slices) {
  int64_t allowance = 0;
  for (const Slice& slice : slices.all()) {
    const int64_t parts = static_cast<int64_t>(slices.receivers(slice).size());
    if (parts > 0 && slice.bytes() % (parts * slice.item_bytes) != 0) {
      allowance += parts * slice.item_bytes;
    }
  }
  return allowance;
}

TEST(VectorsStrategiesTest, GlobalAllGatherLoadsThePorts) {
  int exact = 0;
  for (const CrossMeshVector& v : CrossMeshVectors()) {
    SCOPED_TRACE(v.id);
    const ProblemFixture fixture(*v.tensors, v.topology);
    ASSERT_OK_AND_ASSIGN(const Slices slices, Slices::List("test", *v.tensors, fixture.slicing));
    ASSERT_OK_AND_ASSIGN(const Routes routes, RouteByGlobalAllGather(fixture.problem()));
    const int64_t allowance = RoundingOfParts(slices);
    exact += allowance == 0;
    ExpectLoads(v, fixture, routes, "global_all_gather", allowance);
  }
  EXPECT_GE(exact, 60);
}

TEST(VectorsStrategiesTest, NaiveAndSizeBroadcastsEndInTime) {
  for (const CrossMeshVector& v : CrossMeshVectors()) {
    const Json& expected = v.json["strategies"]["broadcast"];
    if (expected.is_null()) continue;
    SCOPED_TRACE(v.id);
    const ProblemFixture fixture(*v.tensors, v.topology);
    ASSERT_OK_AND_ASSIGN(const Routes naive,
                         RouteByBroadcast(fixture.problem(), BroadcastOrder::kNaive));
    EXPECT_DOUBLE_EQ(naive.model_seconds, FractionOf(expected["naive"]).ToDouble());
    ASSERT_OK_AND_ASSIGN(const Routes size,
                         RouteByBroadcast(fixture.problem(), BroadcastOrder::kSize));
    EXPECT_DOUBLE_EQ(size.model_seconds, FractionOf(expected["size"]).ToDouble());
  }
}

// Another random stream gives other values: single draws may leave the range of the vector's 20
// seeds, the mean of many stays in it but for a small margin.
TEST(VectorsStrategiesTest, GreedyBroadcastsEndInTheRangeOfOtherSeeds) {
  constexpr int kDraws = 8;
  for (const CrossMeshVector& v : CrossMeshVectors()) {
    const Json& expected = v.json["strategies"]["broadcast"];
    if (expected.is_null()) continue;
    SCOPED_TRACE(v.id);
    const ProblemFixture fixture(*v.tensors, v.topology);
    double sum = 0;
    for (int seed = 0; seed < kDraws; ++seed) {
      ASSERT_OK_AND_ASSIGN(const Routes routes,
                           RouteByBroadcast(fixture.problem(seed), BroadcastOrder::kGreedy));
      sum += routes.model_seconds;
    }
    // In T6 two first sets are equally good. The vector's implementation always takes the one that
    // ends later; we take either.
    const Json& least = v.id == "T6" ? v.json["bound"]["time"] : expected["greedy_low"];
    const double low = FractionOf(least).ToDouble();
    const double high = FractionOf(expected["greedy_high"]).ToDouble();
    EXPECT_GE(sum / kDraws, low * 0.97);
    EXPECT_LE(sum / kDraws, high * 1.03);
  }
}

TEST(VectorsStrategiesTest, SearchedBroadcastsEndAsSoonAsWholeSlicesCan) {
  int optima = 0;
  for (const CrossMeshVector& v : CrossMeshVectors()) {
    const Json& expected = v.json["strategies"]["broadcast"];
    if (expected.is_null()) continue;
    SCOPED_TRACE(v.id);
    const ProblemFixture fixture(*v.tensors, v.topology);
    const auto seconds = [&fixture](BroadcastOrder order) {
      return RouteByBroadcast(fixture.problem(), order)->model_seconds;
    };
    ASSERT_OK_AND_ASSIGN(const Routes routes,
                         RouteByBroadcast(fixture.problem(), BroadcastOrder::kSearch));
    EXPECT_LE(routes.model_seconds, seconds(BroadcastOrder::kSize));
    EXPECT_LE(routes.model_seconds, seconds(BroadcastOrder::kGreedy));
    EXPECT_GE(routes.model_seconds, FractionOf(v.json["bound"]["time"]).ToDouble() * (1 - 1e-9));
    if (!expected.contains("unsplit_optimum")) continue;
    ++optima;
    EXPECT_DOUBLE_EQ(routes.model_seconds, FractionOf(expected["unsplit_optimum"]).ToDouble())
        << routes.search;
    EXPECT_THAT(routes.search, StartsWith("complete"));
  }
  EXPECT_GE(optima, 40);
}

TEST(VectorsStrategiesTest, RelayRoutesMeetTheBound) {
  for (const CrossMeshVector& v : CrossMeshVectors()) {
    SCOPED_TRACE(v.id);
    const ProblemFixture fixture(*v.tensors, v.topology);
    ASSERT_OK_AND_ASSIGN(const Routes routes, RouteByRelays(fixture.problem()));
    const PortLoad load = ComputePortLoad(*v.tensors, fixture.network, routes);
    for (size_t h = 0; h < load.host_in.size(); ++h) {  // every byte enters a host once
      const Json& host = v.json["host_bytes"][fixture.network.hosts[h].substr(1)];
      EXPECT_EQ(load.host_in[h], host["in"].get<int64_t>()) << "host " << h;
    }
    const double bound = FractionOf(v.json["bound"]["time"]).ToDouble();
    EXPECT_LE(FindBusiestPort(load, fixture.network).seconds, bound);
  }
}

}  // namespace
}  // namespace crossmesh
