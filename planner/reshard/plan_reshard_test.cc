#include "planner/reshard/plan_reshard.h"

#include "common/base/check.h"
#include "common/plan/proof.h"
#include "common/plan/testing/tables.h"
#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ReshardRequest RequestOf(const std::vector<TensorText>& tensors) {
  return {.tensors = std::make_shared<const TensorTable>(TableOf(tensors))};
}

TEST(PlanReshardTest, AByteEntersAHostOnceAndFansOutThere) {
  const ReshardRequest request = RequestOf({{.shape = "[64]",
                                             .source_mesh = "x=1 on a.0",
                                             .source = "[x]",
                                             .destination_mesh = "y=4 on b.0-1,c.0-1",
                                             .destination = "[-]"}});
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
  EXPECT_OK(Prove(plan));
  EXPECT_EQ(plan.relays().size(), 1u);
  EXPECT_EQ(plan.hops().size(), 4u);
  EXPECT_EQ(plan.figures().network_bytes, 512);
  EXPECT_EQ(plan.figures().least_network_bytes, 512);
  EXPECT_EQ(plan.figures().depth, 2);
  EXPECT_EQ(plan.figures().busiest_host_bytes, 256);
  EXPECT_EQ(plan.figures().busiest_host, "a");
  EXPECT_EQ(plan.figures().strategy, "relay");
  EXPECT_TRUE(plan.figures().assumed_rates);
}

TEST(PlanReshardTest, WhatIsInPlaceIsACopyAndNothingElse) {
  const ReshardRequest request = RequestOf({{.shape = "[8]",
                                             .source_mesh = "x=2 on a.0,b.0",
                                             .source = "[-]",
                                             .destination_mesh = "y=2 on a.0,b.0",
                                             .destination = "[y]"}});
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
  EXPECT_OK(Prove(plan));
  EXPECT_TRUE(plan.relays().empty());
  EXPECT_EQ(plan.copies().size(), 2u);
  EXPECT_EQ(plan.figures().predicted_seconds, 0);
}

TEST(PlanReshardTest, DevicesBesideAHolderAreFedInsideTheHost) {
  const ReshardRequest request = RequestOf({{.shape = "[8]",
                                             .source_mesh = "x=2 on a.0-1",
                                             .source = "[-]",
                                             .destination_mesh = "y=2 on a.1-2",
                                             .destination = "[-]"}});
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
  EXPECT_OK(Prove(plan));
  EXPECT_EQ(plan.figures().network_bytes, 0);
  ASSERT_EQ(plan.hops().size(), 1u);
  EXPECT_EQ(plan.hops()[0].to, 2);
}

TEST(PlanReshardTest, EntriesAndRootsAreSpreadOverTheDevicesOfAHost) {
  const ReshardRequest request = RequestOf({{.shape = "[64, 4]",
                                             .source_mesh = "x=2,z=4 on a.0-3,b.0-3",
                                             .source = "[x, -]",
                                             .destination_mesh = "y=4,w=2 on c.0-7",
                                             .destination = "[-, -]"}});
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
  EXPECT_OK(Prove(plan));
  ASSERT_EQ(plan.relays().size(), 2u);
  EXPECT_NE(plan.hops(plan.relays()[0])[0].to, plan.hops(plan.relays()[1])[0].to);
}

// Of a class that goes in one relay between hosts: its root, and the device that it enters at.
std::pair<DeviceId, DeviceId> RootAndEntryOf(const Plan& plan, ClassIndex slice_class) {
  const auto relay = std::ranges::find(plan.relays(), slice_class, &Relay::slice_class);
  CHECK(relay != plan.relays().end());
  const std::vector<DeviceId>& devices = plan.tensors().devices();
  return {devices[relay->root], devices[plan.hops(*relay)[0].to]};
}

TEST(PlanReshardTest, AnEntryIsTheDeviceThatHasReceivedLeastHoweverMuchItHasSent) {
  const ReshardRequest request = RequestOf({TensorOf("[64]: x=1 on c.0 [-] -> y=1 on d.0 [-]"),
                                            TensorOf("[8]: x=1 on a.0 [-] -> y=1 on c.1 [-]"),
                                            TensorOf("[8]: x=1 on a.0 [-] -> y=2 on c.0-1 [-]")});
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
  EXPECT_OK(Prove(plan));
  EXPECT_EQ(RootAndEntryOf(plan, 2), std::pair(DeviceId{"a", 0}, DeviceId{"c", 0}));
}

TEST(PlanReshardTest, ARootIsTheHolderThatHasSentLeastHoweverMuchItHasReceived) {
  const ReshardRequest request = RequestOf({TensorOf("[64]: x=1 on a.0 [-] -> y=1 on c.0 [-]"),
                                            TensorOf("[8]: x=1 on c.1 [-] -> y=1 on d.0 [-]"),
                                            TensorOf("[8]: x=2 on c.0-1 [-] -> y=1 on d.0 [-]")});
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
  EXPECT_OK(Prove(plan));
  EXPECT_EQ(RootAndEntryOf(plan, 2), std::pair(DeviceId{"c", 0}, DeviceId{"d", 0}));
}

TEST(PlanReshardTest, ClassesOfMixedItemSizesAreCutBetweenElements) {
  const TensorText odd = {.shape = "[7]",
                          .source_mesh = "x=2 on a.0,b.0",
                          .source = "[-]",
                          .destination_mesh = "y=3 on c.0,d.0,e.0",
                          .destination = "[-]",
                          .type = DataType::kU8};
  TensorText wide = odd;
  wide.type = DataType::kF64;
  ReshardRequest request = RequestOf({odd, wide, odd});
  ASSERT_OK_AND_ASSIGN(request.topology, Topology::Create({{"a", {{"n", 3, 1}}},
                                                           {"b", {{"n", 2, 1}}},
                                                           {"c", {{"n", 1, 5}}},
                                                           {"d", {{"n", 1, 5}}},
                                                           {"e", {{"n", 1, 5}}}},
                                                          {}));
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
  EXPECT_OK(Prove(plan));
  EXPECT_GT(plan.relays().size(), 1u);
  EXPECT_FALSE(plan.figures().assumed_rates);
}

TEST(PlanReshardTest, AShareOfTheNicsTakesItsTime) {
  ReshardRequest request = RequestOf({{.shape = "[1048576]",
                                       .source_mesh = "x=1 on a.0",
                                       .source = "[-]",
                                       .destination_mesh = "y=1 on b.0",
                                       .destination = "[-]"}});
  ASSERT_OK_AND_ASSIGN(const Plan whole, PlanReshard(request));
  EXPECT_EQ(whole.spec().least_run_ns, 0);
  request.nic_share = 0.25;
  ASSERT_OK_AND_ASSIGN(const Plan quarter, PlanReshard(request));
  EXPECT_DOUBLE_EQ(quarter.figures().bound.seconds, 4 * whole.figures().bound.seconds);
  EXPECT_NEAR(static_cast<double>(quarter.spec().least_run_ns),
              quarter.figures().bound.seconds * 1e9, 1);
  for (const double share : {0.0, -0.5, 1.5}) {
    request.nic_share = share;
    EXPECT_THAT(PlanReshard(request), IsRefused("nic_share"));
  }
}

TEST(PlanReshardTest, ChunksOfBrokenLeavesOrForNoStagingAreRefused) {
  ReshardRequest request = RequestOf({{.shape = "[8]",
                                       .source_mesh = "x=1 on a.0",
                                       .source = "[-]",
                                       .destination_mesh = "y=1 on b.0",
                                       .destination = "[-]"}});
  for (const int64_t chunk_bytes :
       {int64_t{-65536}, int64_t{65537}, int64_t{16842752}, int64_t{1} << 62}) {
    request.chunk_bytes = chunk_bytes;
    EXPECT_THAT(PlanReshard(request), IsRefused("up to 16777216 bytes"));
  }
  request.chunk_bytes = Plan::kChunkBytesMax;
  EXPECT_OK(PlanReshard(request));
}

TEST(PlanReshardTest, EndsBetweenTwoStepsWhenItIsCancelled) {
  const ReshardRequest request = RequestOf({{.shape = "[8]",
                                             .source_mesh = "x=1 on a.0",
                                             .source = "[-]",
                                             .destination_mesh = "y=1 on b.0",
                                             .destination = "[-]"}});
  int steps = 0;
  ASSERT_OK(PlanReshard(request, [&steps] { return ++steps < 0; }));
  EXPECT_GE(steps, 3);
  for (int last = 1; last <= steps; ++last) {
    int asked = 0;
    EXPECT_THAT(PlanReshard(request, [&] { return ++asked == last; }),
                StatusIs(absl::StatusCode::kCancelled));
    EXPECT_EQ(asked, last);
  }
}

TEST(PlanReshardTest, StrategiesOfTooManyRelaysAreRefusedByName) {
  // 1,024 times 1,024 slices of two tensors and one more.
  const TensorText square = {.shape = "[1024, 1024]",
                             .source_mesh = "x=1024 on a.0-1023",
                             .source = "[x, -]",
                             .destination_mesh = "y=1024 on b.0-1023",
                             .destination = "[-, y]"};
  TensorTable::Spec spec = TableSpecOf({square});
  spec.group_of_tensor = {0, 0, 0};
  ASSERT_OK_AND_ASSIGN(TensorTable table, TensorTable::Create(std::move(spec)));
  ReshardRequest request{.tensors = std::make_shared<const TensorTable>(std::move(table)),
                         .strategy = Strategy::kSendRecv};
  EXPECT_THAT(PlanReshard(request),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("strategy send_recv")));
}

// "PREFIX0.0-1023,PREFIX1.0-1023,...": so many hosts of `devices` devices.
std::string HostsOf(absl::string_view prefix, int hosts, int devices = 1024) {
  std::string text;
  for (int h = 0; h < hosts; ++h) {
    absl::StrAppend(&text, h == 0 ? "" : ",", prefix, h, ".0-", devices - 1);
  }
  return text;
}

TEST(PlanReshardTest, RequestsOfTooManyHopsAreRefusedBeforeRoutesAreMade) {
  // All of 16,384 devices need what each of 16,384 others holds.
  ReshardRequest request = RequestOf({{.shape = "[16384]",
                                       .source_mesh = "x=16384 on " + HostsOf("a", 16),
                                       .source = "[x]",
                                       .destination_mesh = "y=16384 on " + HostsOf("b", 16),
                                       .destination = "[-]"}});
  for (const Strategy strategy : kAllStrategies) {
    request.strategy = strategy;
    int steps = 0;
    EXPECT_THAT(PlanReshard(request, [&steps] { return ++steps < 0; }),
                StatusIs(absl::StatusCode::kResourceExhausted,
                         AllOf(HasSubstr(absl::StrCat("strategy ", StrategyName(strategy))),
                               HasSubstr("hops or more; a plan has at most 16777216"))));
    EXPECT_EQ(steps, 1) << "after the slicing only";
  }
}

TEST(PlanReshardTest, PiecesThatTakeTooManyHopsAreRefused) {
  // Each of 600 hosts sends another fraction, so there is a piece for each, to the 64 devices of
  // each.
  constexpr int kHosts = 600;
  ReshardRequest request = RequestOf({{.shape = "[1073741824]",
                                       .source_mesh = "x=1 on a.0",
                                       .source = "[x]",
                                       .destination_mesh = "y=38400 on " + HostsOf("b", kHosts, 64),
                                       .destination = "[-]"}});
  std::vector<Host> hosts = {{"a", {{"n", 1000, 100'000}}}};
  for (int h = 0; h < kHosts; ++h) {
    hosts.push_back({absl::StrCat("b", h), {{"n", 900 + h * 7 % 200, 100'000}}});
  }
  ASSERT_OK_AND_ASSIGN(request.topology, Topology::Create(std::move(hosts), {}));
  EXPECT_THAT(PlanReshard(request),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("strategy relay needs"), HasSubstr("hops or more"))));
}

TEST(PlanReshardTest, PartsThatTakeTooManyHopsAreRefused) {
  // A part for each receiver goes to all of its host, or to all.
  ReshardRequest request = RequestOf({{.shape = "[4096]",
                                       .source_mesh = "x=2 on a.0-1",
                                       .source = "[x]",
                                       .destination_mesh = "y=65536 on " + HostsOf("b", 64),
                                       .destination = "[-]"}});
  request.strategy = Strategy::kLocalAllGather;
  EXPECT_THAT(PlanReshard(request), StatusIs(absl::StatusCode::kResourceExhausted,
                                             HasSubstr("local_all_gather needs 67108864 hops")));
  request.strategy = Strategy::kGlobalAllGather;
  EXPECT_THAT(PlanReshard(request), StatusIs(absl::StatusCode::kResourceExhausted,
                                             HasSubstr("global_all_gather needs 134217728 hops")));
}

TEST(PlanReshardTest, HoldersBeyondWhatAStrategyCanChooseAmongAreRefused) {
  ReshardRequest request = RequestOf({{.shape = "[16384]",
                                       .source_mesh = "x=16384 on " + HostsOf("a", 16),
                                       .source = "[-]",
                                       .destination_mesh = "y=16384 on " + HostsOf("b", 16),
                                       .destination = "[y]"}});
  request.strategy = Strategy::kSendRecv;
  EXPECT_THAT(PlanReshard(request),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("send_recv chooses among 268451840 holders and receivers")));
}

TEST(StrategyTest, NamesAreReadBack) {
  for (const Strategy strategy : kAllStrategies) {
    EXPECT_THAT(ParseStrategy(StrategyName(strategy)), IsOkAndHolds(strategy));
  }
  EXPECT_THAT(ParseStrategy("relays"), IsRefused("broadcast_greedy"));
}

// One of two replicas stands in the receivers' rack, the other behind a narrow uplink.
ReshardRequest TwoReplicasAndReceivers(int receivers) {
  std::vector<std::string> hosts = {"a", "b"}, destinations;
  for (int h = 0; h < receivers; ++h) {
    hosts.push_back(absl::StrCat("h", h));
    destinations.push_back(absl::StrCat("h", h, ".0"));
  }
  ReshardRequest request = RequestOf(
      {{.shape = absl::StrCat("[", 1000 * receivers, "]"),
        .source_mesh = "x=2 on a.0,b.0",
        .source = "[-]",
        .destination_mesh = absl::StrCat("y=", receivers, " on ", absl::StrJoin(destinations, ",")),
        .destination = "[y]"}});
  std::vector<Host> described;
  for (const std::string& host : hosts) described.push_back({host, {{"nic", 1000, 1000}}});
  const std::vector<Rack> racks = {{"far", {"a"}, 10, 10},
                                   {"near", {hosts.begin() + 1, hosts.end()}, 1000, 1000}};
  absl::StatusOr<Topology> topology = Topology::Create(std::move(described), racks);
  CHECK_OK(topology);
  request.topology = *std::move(topology);
  return request;
}

TEST(PlanReshardTest, ANarrowUplinkIsLeftAlone) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(TwoReplicasAndReceivers(4)));
  EXPECT_OK(Prove(plan));
  const PlanFigures& figures = plan.figures();
  // 16,000 bytes at 1,010 a second: the uplink has a hundredth of what b sends.
  EXPECT_NEAR(figures.bound.together_seconds, 16000 / 1010.0, 1e-6);
  EXPECT_NEAR(figures.predicted_seconds, figures.bound.seconds, 0.01 * figures.bound.seconds);
  EXPECT_EQ(figures.excess.routing_seconds, 0);
  EXPECT_THAT(figures.search, HasSubstr(" bytes, 0 at least"));
}

TEST(PlanReshardTest, WhatAnUplinkCarriesBeyondTheBoundIsRouting) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(TwoReplicasAndReceivers(1100)));
  const PlanFigures& figures = plan.figures();
  EXPECT_EQ(figures.bound.together_seconds, 0);
  EXPECT_GT(figures.excess.routing_seconds, figures.bound.seconds);
  EXPECT_LT(figures.excess.rounding_seconds, 0.01 * figures.bound.seconds);
}

}  // namespace
}  // namespace crossmesh
