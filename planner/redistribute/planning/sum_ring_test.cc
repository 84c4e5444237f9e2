#include "planner/redistribute/planning/sum_ring.h"

#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "common/plan/proof.h"
#include "common/testing/status_matchers.h"
#include "planner/redistribute/planning/testing/course_requests.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;

constexpr int64_t kPortRate = 12'500'000;  // bytes per second
constexpr int64_t kBytes = int64_t{64} << 20;

struct Sums {
  std::string mesh = "x=4 on h0.0,h1.0,h2.0,h3.0";
  std::string source = "[-, -]";
  std::string destination = "[x, -]";
  std::vector<std::string> partial = {"x"};
  DataType type = DataType::kF32;
  std::string reduction = "sum";
  int64_t rate = kPortRate;
};

// Of 64 MiB, in 1024 rows, or in 512 of four parts where there are three dimensions.
ReshardRequest RequestOf(const Sums& sums) {
  const Mesh mesh = ParseMesh(sums.mesh).value();
  const int64_t columns = kBytes / 1024 / ItemBytes(sums.type);
  const std::vector<int64_t> lengths = sums.source == "[-, -]"
                                           ? std::vector<int64_t>{1024, columns}
                                           : std::vector<int64_t>{512, 4, columns / 2};
  TensorTable::Spec spec{.sources = {{mesh, *ParseLayout(sums.source)}},
                         .destinations = {{mesh, *ParseLayout(sums.destination)}},
                         .groups = {{.shape = *Shape::Create(lengths), .type = sums.type}},
                         .group_of_tensor = {0}};
  ReshardRequest request{
      .tensors = std::make_shared<const TensorTable>(TensorTable::Create(std::move(spec)).value()),
      .strategy = Strategy::kRedistribute};
  request.redistribution = {.source_partial = sums.partial, .reduction = sums.reduction};
  std::vector<Host> hosts;
  for (const std::string& name : request.tensors->hosts()) {
    hosts.push_back({name, {{"n", sums.rate, sums.rate, 0, 0}}});
  }
  request.topology = Topology::Create(std::move(hosts), {}).value();
  return request;
}

int64_t RoundsOf(const ReshardRequest& request, const CourseSizes& sizes = {}) {
  const absl::StatusOr<Plan> plan = PlanOf({.request = request, .sizes = sizes});
  EXPECT_OK(plan.status());
  if (!plan.ok()) return -1;
  EXPECT_OK(Prove(*plan));
  EXPECT_EQ(plan->courses().size(), 1);
  return std::ranges::count_if(plan->courses()[0].steps, &Course<Plan>::Step::adds_own);
}

TEST(SumRing, SumsOfHostsGoRoundARingInWhichEachHearsFromOne) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf({.request = RequestOf({}), .sizes = CourseSizes()}));
  ASSERT_OK(Prove(plan));
  EXPECT_THAT(plan.figures().search, HasSubstr("1 tensor in 1 step, summands round rings, from "
                                               "the host after the one that keeps the sum on"));
  const Course<Plan>& course = plan.courses()[0];
  ASSERT_EQ(course.steps.size(), 3);
  for (const Course<Plan>::Step& step : course.steps) {
    EXPECT_TRUE(step.adds_own);
    EXPECT_EQ(step.reduction, Reduction{});
    EXPECT_EQ(step.move->figures().depth, 1);
    std::vector<DeviceRank> heard(4, -1);
    for (const Hop& hop : step.move->hops()) {
      EXPECT_EQ(hop.to, (hop.from + 1) % 4);
      heard[hop.to] = hop.from;
    }
    EXPECT_THAT(heard, testing::Each(testing::Ge(0)));
  }
  // No more bytes than straight, and no host is ever idle but for the first instance's rounds.
  EXPECT_THAT(plan.figures().predicted_seconds, DoubleNear(0.75 * kBytes / kPortRate, 1e-6));
}

// So that one stream has every port.
TEST(SumRing, AGatherAfterItStaysOnItsRing) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf({.request = RequestOf({.destination = "[-, -]"}),
                                                .sizes = CourseSizes()}));
  ASSERT_OK(Prove(plan));
  ASSERT_EQ(plan.courses()[0].steps.size(), 4);
  EXPECT_EQ(plan.courses()[0].steps.back().move->figures().depth, 3);
  EXPECT_THAT(plan.figures().predicted_seconds, DoubleNear(1.5 * kBytes / kPortRate, 0.1));
}

TEST(SumRing, AMeanIsDividedAtTheEnd) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf({.request = RequestOf({.reduction = "mean"}),
                                                .sizes = CourseSizes()}));
  std::vector<int64_t> divisors;
  for (const auto& step : plan.courses()[0].steps) divisors.push_back(step.reduction->divisor);
  EXPECT_THAT(divisors, testing::ElementsAre(1, 1, 4));
}

TEST(SumRing, WhatWouldBeRoundedOnItsWayIsAddedAtOnce) {
  EXPECT_EQ(RoundsOf(RequestOf({.type = DataType::kBF16})), 0);
  EXPECT_EQ(RoundsOf(RequestOf({.type = DataType::kBF16, .reduction = "max"})), 3);
  EXPECT_EQ(RoundsOf(RequestOf({.type = DataType::kI64})), 3);
}

TEST(SumRing, AnOrderThatIsGivenIsKept) {
  ReshardRequest request = RequestOf({});
  request.redistribution.reduction_order = "any";
  EXPECT_EQ(RoundsOf(request), 3);
  request.redistribution.reduction_order = "fixed";
  EXPECT_EQ(RoundsOf(request), 0);
  // In which integers wrap to the same.
  request = RequestOf({.type = DataType::kI32});
  request.redistribution.reduction_order = "fixed";
  EXPECT_EQ(RoundsOf(request), 3);
}

TEST(SumRing, ItTakesOneDeviceOfEachOfThreeHostsOrMore) {
  EXPECT_EQ(RoundsOf(RequestOf({.mesh = "x=2 on h0.0,h1.0"})), 0);
  EXPECT_EQ(RoundsOf(RequestOf({.mesh = "x=4 on h0.0,h0.1,h1.0,h2.0"})), 0);
  // Two devices have the same summand.
  EXPECT_EQ(RoundsOf(RequestOf({.mesh = "x=2,y=2 on h0.0,h1.0,h2.0,h3.0"})), 0);
}

// A device's own summand of such a piece lies in no row of runs, which a proof would refuse.
TEST(SumRing, PiecesInRowsOfRowsOfRunsAreAddedAtOnce) {
  const std::string mesh = "x=2,y=2 on h0.0,h1.0,h2.0,h3.0";
  const auto rounds = [&](const std::string& destination) {
    return RoundsOf(RequestOf(
        {.mesh = mesh, .source = "[-, -, -]", .destination = destination, .partial = {"x", "y"}}));
  };
  EXPECT_EQ(rounds("[x*y, -, -]"), 3);
  EXPECT_EQ(rounds("[-, x, y]"), 0);
}

// Of 1024 rows each device's piece has 4096 elements.
TEST(SumRing, PiecesInShortRunsAreAddedAtOnce) {
  const ReshardRequest request = RequestOf({.destination = "[-, x]"});
  EXPECT_EQ(RoundsOf(request, {.row_elements = 4096}), 3);
  EXPECT_EQ(RoundsOf(request, {.row_elements = 4097}), 0);
}

// A round takes less than ten times what a step costs besides.
TEST(SumRing, OverFastPortsSumsAreMadeAtOnce) {
  EXPECT_EQ(RoundsOf(RequestOf({.rate = 100 * kPortRate})), 0);
}

TEST(SumRing, WhereTheSourceIsNotToStaySumsAreMadeAtOnce) {
  ReshardRequest request = RequestOf({.destination = "[-, -]"});
  request.beside = Beside::kTransfers;
  EXPECT_EQ(RoundsOf(request), 0);
  request.beside = Beside::kNothing;
  request.shared_storage = true;
  EXPECT_EQ(RoundsOf(request), 3);
  request.binding = BindingMode::kInPlace;
  EXPECT_EQ(RoundsOf(request), 0);
  request.shared_storage = false;
  request.redistribution.release_source = true;
  EXPECT_EQ(RoundsOf(request), 0);
}

TEST(SumRing, WithinALimitOfMemoryThatIsTooLowForItSumsAreMadeAtOnce) {
  ReshardRequest request = RequestOf({.destination = "[-, -]"});
  ASSERT_OK_AND_ASSIGN(const Plan ring, PlanOf({.request = request, .sizes = CourseSizes()}));
  ASSERT_OK_AND_ASSIGN(const Proof proof, Prove(ring));
  request.device_bytes_max = proof.peak_device_bytes;
  EXPECT_EQ(RoundsOf(request), 3);
  --request.device_bytes_max;
  EXPECT_EQ(RoundsOf(request), 0);
}

TEST(SumRing, RandomOnesAreProven) {
  int64_t rings = 0;
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanOf(RandomSumRingRequest(seed)));
    EXPECT_OK(Prove(plan));
    rings += plan.courses()[0].steps.front().adds_own ? 1 : 0;
  }
  EXPECT_GT(rings, 12);
}

}  // namespace
}  // namespace crossmesh
