#include "planner/reshard/even_pace.h"

#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"
#include "planner/reshard/plan_reshard.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

constexpr int64_t kHundredMegabit = 12'500'000;  // 100 Mbit/s

// Rates of hosts a, b and c.
struct RatesOfThree {
  std::vector<int64_t> out = {kHundredMegabit, kHundredMegabit, kHundredMegabit};
  std::vector<int64_t> in = {kHundredMegabit, kHundredMegabit, kHundredMegabit};
};

Topology ThreeHosts(const RatesOfThree& rates, std::vector<Rack> racks = {}) {
  std::vector<Host> hosts;
  for (size_t i = 0; i < rates.out.size(); ++i) {
    hosts.push_back(
        {std::string(1, static_cast<char>('a' + i)), {{"n", rates.out[i], rates.in[i]}}});
  }
  return *Topology::Create(std::move(hosts), std::move(racks));
}

// 3 MiB of F32 on each of three hosts, by default with a part for each other one.
ReshardRequest ExchangeOf(const std::string& source = "[x, -]",
                          const std::string& destination = "[-, x]",
                          const std::string& source_mesh = "x=3 on a.0,b.0,c.0",
                          const std::string& destination_mesh = "x=3 on a.0,b.0,c.0") {
  return {
      .tensors = std::make_shared<const TensorTable>(TableOf({{.shape = "[768, 3072]",
                                                               .source_mesh = source_mesh,
                                                               .source = source,
                                                               .destination_mesh = destination_mesh,
                                                               .destination = destination}})),
      .topology = ThreeHosts({})};
}

// Zero where the plan is as fast as may be.
double LeastSecondsOf(const ReshardRequest& request) {
  const absl::StatusOr<Plan> plan = PlanReshard(request);
  EXPECT_OK(plan.status());
  return plan.ok() ? static_cast<double>(plan->spec().least_run_ns) * 1e-9 : -1;
}

TEST(EvenPaceTest, StreamsOfAllToAllKeepThePaceOfTheBound) {
  const ReshardRequest request = ExchangeOf();
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
  EXPECT_GT(plan.figures().bound.seconds, 0.1);
  EXPECT_NEAR(LeastSecondsOf(request), plan.figures().bound.seconds, 1e-8);
}

TEST(EvenPaceTest, StreamsThatMeetAtOneFullPortKeepIt) {
  ReshardRequest request = ExchangeOf("[x, -]", "[-, -]", "x=2 on a.0,b.0", "y=1 on c.0");
  // Both senders have time to spare.
  EXPECT_EQ(LeastSecondsOf(request), 0);
  request.topology =
      ThreeHosts({.out = {kHundredMegabit / 2, kHundredMegabit / 2, kHundredMegabit}});
  EXPECT_GT(LeastSecondsOf(request), 0);
}

TEST(EvenPaceTest, WhereOnePortHasTimeToSpareNothingIsHeldUp) {
  ReshardRequest request = ExchangeOf();
  request.topology =
      ThreeHosts({.out = {kHundredMegabit, kHundredMegabit, kHundredMegabit * 21 / 20}});
  EXPECT_EQ(LeastSecondsOf(request), 0);
  request.topology =
      ThreeHosts({.in = {kHundredMegabit, kHundredMegabit * 21 / 20, kHundredMegabit}});
  EXPECT_EQ(LeastSecondsOf(request), 0);
  // By a hundredth is as good as equal.
  request.topology =
      ThreeHosts({.in = {kHundredMegabit, kHundredMegabit * 101 / 100, kHundredMegabit}});
  EXPECT_GT(LeastSecondsOf(request), 0);
}

TEST(EvenPaceTest, StreamsThatMeetNoOtherAreAsFastAsMayBe) {
  EXPECT_EQ(LeastSecondsOf(ExchangeOf("[x, -]", "[x, -]", "x=1 on a.0", "x=1 on b.0")), 0);
  // A gather goes round a ring.
  EXPECT_EQ(LeastSecondsOf(ExchangeOf("[x, -]", "[-, -]")), 0);
}

// What is forwarded comes when it comes: beside an exchange of all with all a gather that goes
// round a ring, so that all ports are as full.
TEST(EvenPaceTest, WhereSomeIsForwardedStreamsAreAsFastAsMayBe) {
  ReshardRequest request = ExchangeOf();
  const std::string mesh = "x=3 on a.0,b.0,c.0";
  std::vector<TensorText> both;
  for (const auto& [source, destination] :
       {std::pair("[x, -]", "[-, x]"), std::pair("[x, -]", "[-, -]")}) {
    both.push_back({.shape = "[768, 3072]",
                    .source_mesh = mesh,
                    .source = source,
                    .destination_mesh = mesh,
                    .destination = destination});
  }
  request.tensors = std::make_shared<const TensorTable>(TableOf(both));
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
  ASSERT_GT(plan.figures().depth, 1);
  EXPECT_EQ(LeastSecondsOf(request), 0);
}

TEST(EvenPaceTest, AmongRacksNothingIsHeldUp) {
  ReshardRequest request = ExchangeOf();
  request.topology =
      ThreeHosts({}, {{"r", {"a", "b", "c"}, 10 * kHundredMegabit, 10 * kHundredMegabit}});
  EXPECT_EQ(LeastSecondsOf(request), 0);
}

TEST(EvenPaceTest, RatesThatAreAssumedHoldNothingUp) {
  ReshardRequest request = ExchangeOf();
  request.topology = Topology();
  EXPECT_EQ(LeastSecondsOf(request), 0);
  std::vector<Host> two = {{"a", {{"n", kHundredMegabit, kHundredMegabit}}},
                           {"b", {{"n", kHundredMegabit, kHundredMegabit}}}};
  ASSERT_OK_AND_ASSIGN(request.topology, Topology::Create(std::move(two), {}, kHundredMegabit));
  EXPECT_EQ(LeastSecondsOf(request), 0);
}

TEST(EvenPaceTest, BesideOthersNothingIsHeldUp) {
  ReshardRequest request = ExchangeOf();
  for (const Beside beside : {Beside::kInstances, Beside::kTransfers}) {
    request.beside = beside;
    EXPECT_EQ(LeastSecondsOf(request), 0);
  }
}

// Of 64 KiB that take less than a millisecond.
TEST(EvenPaceTest, PortsThatPassAChunkInNoTimeHoldNothingUp) {
  ReshardRequest request = ExchangeOf();
  const auto network = [](int64_t rate) {
    return ThreeHosts({.out = {rate, rate, rate}, .in = {rate, rate, rate}});
  };
  request.topology = network(60'000'000);
  EXPECT_GT(LeastSecondsOf(request), 0);
  request.topology = network(70'000'000);
  EXPECT_EQ(LeastSecondsOf(request), 0);
}

TEST(EvenPaceTest, PublishedStrategiesAreAsFastAsMayBe) {
  ReshardRequest request = ExchangeOf();
  request.strategy = Strategy::kSendRecv;
  EXPECT_EQ(LeastSecondsOf(request), 0);
}

}  // namespace
}  // namespace crossmesh
