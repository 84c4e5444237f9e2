#include "common/plan/plan.h"

#include "common/base/check.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

Plan::Spec OneRelay() {
  auto tensors = std::make_shared<const TensorTable>(
      TableOf({TensorOf("[4]: x=1 on a.0 [-] -> x=3 on a.0,b.0-1 [-]")}));
  auto slicing = Slicing::Create(*tensors);
  CHECK_OK(slicing);
  return {
      .tensors = tensors,
      .slicing = std::make_shared<const Slicing>(*std::move(slicing)),
      .relays =
          {{.slice_class = 0, .root = 0, .begin = 0, .end = 16, .first_hop = 0, .hop_count = 2}},
      .hops = {{.from = 0, .to = 1}, {.from = 1, .to = 2, .period = 1}},
      .copies = {{.slice_class = 0, .device = 0}}};
}

TEST(PlanTest, RefusesWhatIsOutOfRange) {
  const auto expect_refused = [&](auto change) {
    Plan::Spec spec = OneRelay();
    change(spec);
    EXPECT_THAT(Plan::Create(std::move(spec)),
                StatusIs(absl::StatusCode::kInternal, HasSubstr("expected")));
  };
  expect_refused([](Plan::Spec& s) { s.tensors = nullptr; });
  expect_refused([](Plan::Spec& s) { s.slicing = nullptr; });
  expect_refused([](Plan::Spec& s) { s.chunk_bytes = 0; });
  expect_refused([](Plan::Spec& s) { s.chunk_bytes = Plan::kLeafBytes + 1; });
  expect_refused([](Plan::Spec& s) { s.relays[0].slice_class = 1; });
  expect_refused([](Plan::Spec& s) { s.relays[0].slice_class = -1; });
  expect_refused([](Plan::Spec& s) { s.relays[0].root = 3; });
  expect_refused([](Plan::Spec& s) { s.relays[0].begin = -4; });
  expect_refused([](Plan::Spec& s) { s.relays[0].begin = 16; });
  expect_refused([](Plan::Spec& s) { s.relays[0].end = 20; });
  expect_refused([](Plan::Spec& s) { s.relays[0].hop_count = 0; });
  expect_refused([](Plan::Spec& s) { s.relays[0].hop_count = 3; });
  expect_refused([](Plan::Spec& s) { s.relays[0].hop_count = 1; });
  expect_refused([](Plan::Spec& s) { s.relays[0].first_hop = -1; });
  expect_refused([](Plan::Spec& s) { s.relays.push_back(s.relays[0]); });
  expect_refused([](Plan::Spec& s) { s.hops[0].from = -1; });
  expect_refused([](Plan::Spec& s) { s.hops[0].to = 3; });
  expect_refused([](Plan::Spec& s) { s.hops[0].to = 0; });
  expect_refused([](Plan::Spec& s) { s.hops[0].place = -1; });
  expect_refused([](Plan::Spec& s) { s.hops[0].period = -1; });
  expect_refused([](Plan::Spec& s) { s.relays[0].due = {-1, 0}; });
  expect_refused([](Plan::Spec& s) { s.relays[0].due = {2, 1}; });
  expect_refused([](Plan::Spec& s) { s.relays[0].due = {0, DueTime::kParts + 1}; });
  expect_refused([](Plan::Spec& s) { s.periods = -1; });
  expect_refused([](Plan::Spec& s) { s.least_run_ns = -1; });
  expect_refused([](Plan::Spec& s) { s.copies[0].slice_class = 1; });
  expect_refused([](Plan::Spec& s) { s.copies[0].device = 3; });
}

TEST(PlanTest, NamesWhatIsOutOfRange) {
  const auto expect_refused = [&](const std::string& message, auto change) {
    Plan::Spec spec = OneRelay();
    change(spec);
    EXPECT_THAT(Plan::Create(std::move(spec)), StatusIs(absl::StatusCode::kInternal, message));
  };
  expect_refused("slicing: expected 1 grids, one a tensor group, found 2", [](Plan::Spec& s) {
    const TensorText tensor = TensorOf("[4]: x=1 on a.0 [-] -> x=3 on a.0,b.0-1 [-]");
    auto slicing = Slicing::Create(TableOf({tensor, tensor}));
    CHECK_OK(slicing);
    s.slicing = std::make_shared<const Slicing>(*std::move(slicing));
  });
  expect_refused("class of relay 0: expected below 1, found 1",
                 [](Plan::Spec& s) { s.relays[0].slice_class = 1; });
  expect_refused("root of relay 0: expected a device below 3, found 3",
                 [](Plan::Spec& s) { s.relays[0].root = 3; });
  expect_refused("first byte of relay 0: expected from 0 to below 16, found 16",
                 [](Plan::Spec& s) { s.relays[0].begin = 16; });
  expect_refused("end of relay 0: expected at most the class's 16 bytes, found 17",
                 [](Plan::Spec& s) { s.relays[0].end = 17; });
  expect_refused("due time of relay 0: expected an interval of its plan's run, found 2",
                 [](Plan::Spec& s) { s.relays[0].due = {2, 1}; });
  const std::string hops = "hops of relay 0: expected at least one, within 2, found ";
  expect_refused(hops + "0", [](Plan::Spec& s) { s.relays[0].hop_count = 0; });
  expect_refused(hops + "0", [](Plan::Spec& s) { s.relays[0].hop_count = 3; });
  expect_refused(hops + "1", [](Plan::Spec& s) { s.relays[0].first_hop = 1; });
  expect_refused(hops + "-1", [](Plan::Spec& s) { s.relays[0].first_hop = -1; });
  expect_refused("hop of relay 1: expected one of no other relay, found 0",
                 [](Plan::Spec& s) { s.relays.push_back(s.relays[0]); });
  expect_refused("hops: expected each in one relay, found 0", [](Plan::Spec& s) {
    s.relays[0].first_hop = 1;
    s.relays[0].hop_count = 1;
  });
  expect_refused("class of copy 1: expected below 1, found 1",
                 [](Plan::Spec& s) { s.copies.push_back({.slice_class = 1}); });
  expect_refused("device of copy 0: expected a device of the plan, found 3",
                 [](Plan::Spec& s) { s.copies[0].device = 3; });
}

TEST(PlanTest, TakesTheLastByteOfAClassAlone) {
  Plan::Spec spec = OneRelay();
  spec.relays[0].begin = 15;
  EXPECT_OK(Plan::Create(std::move(spec)));
}

// What was taken off a list is still in its memory.
TEST(PlanTest, LooksAtNothingAfterTheEndOfItsLists) {
  Plan::Spec spec = OneRelay();
  spec.relays.push_back({.slice_class = 9});
  spec.relays.pop_back();
  spec.copies.push_back({.slice_class = 9});
  spec.copies.pop_back();
  EXPECT_OK(Plan::Create(std::move(spec)));
}

TEST(PlanTest, ABroadcastGroupHasAscendingDevices) {
  const auto with_group = [](const std::vector<DeviceRank>& group) {
    Plan::Spec spec = OneRelay();
    spec.broadcast_groups.Add(std::vector<DeviceRank>{0, 1, 2});
    spec.broadcast_groups.Add(group);
    return Plan::Create(std::move(spec));
  };
  EXPECT_OK(with_group({0, 1, 2}));
  const auto is_refused_for = [](int device) {
    return StatusIs(absl::StatusCode::kInternal,
                    "broadcast group 1: expected ascending devices of the plan, found " +
                        std::to_string(device));
  };
  EXPECT_THAT(with_group({0, 1, 1}), is_refused_for(1));
  EXPECT_THAT(with_group({2, 0, 1}), is_refused_for(0));
  EXPECT_THAT(with_group({1, 2, 3}), is_refused_for(3));
  EXPECT_THAT(with_group({-1, 0, 1}), is_refused_for(-1));
}

TEST(PlanTest, AsManyRelaysAsTheLimitAreLookedAt) {
  Plan::Spec spec = OneRelay();
  spec.relays.resize(Plan::kRelaysMax, spec.relays[0]);
  EXPECT_THAT(Plan::Create(std::move(spec)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("hop of relay 1")));
}

TEST(PlanTest, MoreHopsOrCopiesThanTheLimitAreTooLargeAndNoBug) {
  Plan::Spec spec = OneRelay();
  spec.hops.resize(Plan::kHopsMax + 1);
  EXPECT_THAT(Plan::Create(std::move(spec)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "hops of a plan: expected at most 16777216, found 16777217"));
  spec = OneRelay();
  spec.copies.resize(Plan::kCopiesMax + 1);
  EXPECT_THAT(Plan::Create(std::move(spec)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "copies of a plan: expected at most 16777216, found 16777217"));
}

TEST(PlanTest, MoreRelaysThanTheLimitAreTooLargeAndNoBug) {
  Plan::Spec spec = OneRelay();
  spec.relays.resize(Plan::kRelaysMax + 1, spec.relays[0]);
  EXPECT_THAT(Plan::Create(std::move(spec)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("relays of a plan: expected at most 2097152, found 2097153")));
}

TEST(PlanTest, TheIdIsOfEverythingButTheFigures) {
  const Digest id = Plan::Create(OneRelay())->id();
  const auto id_after = [&](auto change) {
    Plan::Spec spec = OneRelay();
    change(spec);
    return Plan::Create(std::move(spec))->id();
  };
  EXPECT_EQ(id_after([](Plan::Spec&) {}), id);
  EXPECT_EQ(id_after([](Plan::Spec& s) { s.figures.predicted_seconds = 1; }), id);
  EXPECT_NE(id_after([](Plan::Spec& s) { s.chunk_bytes = Plan::kLeafBytes; }), id);
  EXPECT_NE(id_after([](Plan::Spec& s) { s.binding = BindingMode::kInPlace; }), id);
  EXPECT_NE(id_after([](Plan::Spec& s) { s.shared_storage = true; }), id);
  EXPECT_NE(id_after([](Plan::Spec& s) { s.relays[0].end = 12; }), id);
  EXPECT_NE(id_after([](Plan::Spec& s) { s.relays[0].begin = 4; }), id);
  EXPECT_NE(id_after([](Plan::Spec& s) { s.relays[0].root = 2; }), id);
  EXPECT_NE(id_after([](Plan::Spec& s) { s.relays[0].due = {0, 1}; }), id);
  EXPECT_NE(id_after([](Plan::Spec& s) { s.relays[0].due = {1, 1}; }), id);
  EXPECT_NE(id_after([](Plan::Spec& s) { s.periods = 1; }), id);
  EXPECT_NE(id_after([](Plan::Spec& s) { s.least_run_ns = 1; }), id);
  EXPECT_NE(id_after([](Plan::Spec& s) { std::swap(s.hops[0], s.hops[1]); }), id);
  EXPECT_NE(id_after([](Plan::Spec& s) { s.hops[1].place = 1; }), id);
  EXPECT_NE(id_after([](Plan::Spec& s) { s.hops[1].period = 2; }), id);
  EXPECT_NE(id_after([](Plan::Spec& s) { s.copies.clear(); }), id);
}

// Whatever becomes part of the id, or no longer is, makes other ids of plans that are the same.
TEST(PlanTest, TheSamePlanHasTheSameIdInEveryVersion) {
  Plan::Spec spec = OneRelay();
  ASSERT_OK_AND_ASSIGN(const Plan plain, Plan::Create(spec));
  EXPECT_EQ(plain.id().ToString(), "1a928dab9611081393bc8e262ec88aa2");
  spec.relays[0].due = {1, 2};
  spec.hops[1].place = 4;
  spec.broadcast_groups.Add(std::vector<DeviceRank>{0, 1, 2});
  spec.periods = 5;
  spec.least_run_ns = 6;
  spec.binding = BindingMode::kInPlace;
  spec.shared_storage = true;
  ASSERT_OK_AND_ASSIGN(const Plan full, Plan::Create(spec));
  EXPECT_EQ(full.id().ToString(), "201afa7e53bf2820355d5126d3dc72a1");
}

TEST(PlanTest, ChunksAreDueEvenly) {
  const DueTime due = {.begin = 100, .end = 200};
  EXPECT_EQ(due.Of(0, 4), 100);
  EXPECT_EQ(due.Of(1, 4), 125);
  EXPECT_EQ(due.Of(4, 4), 200);
  EXPECT_EQ((DueTime{0, DueTime::kParts}).Of(Plan::kRelaysMax, Plan::kRelaysMax), DueTime::kParts);
}

TEST(PlanTest, ARelayHasItsPartOfThePeriods) {
  constexpr int64_t kMebi = 1 << 20;
  constexpr DueTime kAlways = {0, DueTime::kParts};
  constexpr DueTime kThird = {0, DueTime::kParts / 3};
  EXPECT_EQ(RelayChunks(256 * kMebi, kAlways, 2 * kMebi, 200), 200);
  EXPECT_EQ(RelayChunks(256 * kMebi, kThird, 8 * kMebi, 200), 67);
  // None longer than a chunk may be, none shorter than a leaf.
  EXPECT_EQ(RelayChunks(256 * kMebi, kAlways, kMebi, 200), 256);
  EXPECT_EQ(RelayChunks(kMebi, kAlways, kMebi, 200), 16);
  EXPECT_EQ(RelayChunks(1, kAlways, kMebi, 200), 1);
  EXPECT_EQ(RelayChunks(Plan::kLeafBytes + 1, kAlways, kMebi, 200), 2);
  // Two and a bit of three periods.
  static_assert((int64_t{2} * DueTime::kParts + 1) % 3 == 0);
  constexpr DueTime kMore = {0, static_cast<int32_t>((int64_t{2} * DueTime::kParts + 1) / 3)};
  EXPECT_EQ(RelayChunks(kMebi, kMore, kMebi, 3), 3);
  // As few as may be.
  EXPECT_EQ(RelayChunks(kMebi + 1, {}, kMebi, 0), 2);
  EXPECT_EQ(RelayChunks(256 * kMebi, kAlways, kMebi, 0), 256);
  EXPECT_EQ(RelayChunks(256 * kMebi, {}, kMebi, 200), 256);
}

TEST(PlanTest, PrintsAStableText) {
  Plan::Spec spec = OneRelay();
  spec.relays[0].due = {0, DueTime::kParts / 4};
  spec.periods = 8;
  spec.figures = {.strategy = "relay",
                  .bound = {.seconds = 0.25,
                            .ingress_seconds = 0.25,
                            .proof = {{PortPrice::Port::kHostIn, "b", 1}}},
                  .predicted_seconds = 0.5,
                  .excess = {.rounding_seconds = 0.125, .fill_seconds = 0.125},
                  .assumed_rates = true,
                  .depth = 1,
                  .network_bytes = 16,
                  .least_network_bytes = 16,
                  .busiest_host_bytes = 16,
                  .busiest_host = "a",
                  .search = "1 flow"};
  ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Create(std::move(spec)));
  EXPECT_EQ(ToText(plan), "plan " + plan.id().ToString() +
                              R"(
chunk 1048576 bytes, periods 8, binding shadow
tensors 1 in 1 groups, 1 replicas
  group 0: 1 x F32[4] from [-] over x=1 on a.0 to [-] over x=3 on a.0,b.0-1
classes 1
  class 0: 16 bytes, held by a.0, needed by a.0,b.0-1
relays 1 with 2 hops
  relay 0: class 0 [0, 16) from a.0 due 0.000-0.250: a.0>b.0#0 b.0>b.1#0+1
copies 1
  class 0 on a.0
figures
  strategy relay
  bound 0.25 s (ingress 0.25, uplink 0, rack ingress 0, rack uplink 0)
    price of host_in b 1
  predicted 0.5 s at assumed rates, depth 1
  excess: rounding 0.125 s, fill 0.125, blocking not simulated
  network 16 bytes, least 16; busiest host a with 16
  search 1 flow
)");
  EXPECT_THAT(ToText(plan, 0), HasSubstr("relays 1 with 2 hops\n  and 1 more\n"));
}

TEST(PlanTest, PrintsWhatOnlyRacksHave) {
  Plan::Spec spec = OneRelay();
  spec.figures.bound = {.seconds = 6, .together_seconds = 6};
  spec.figures.excess.routing_seconds = 0.5;
  ASSERT_OK_AND_ASSIGN(const Plan plan, Plan::Create(std::move(spec)));
  EXPECT_THAT(ToText(plan), HasSubstr("rack uplink 0, together 6)\n"));
  EXPECT_THAT(ToText(plan), HasSubstr("excess: rounding 0 s, routing 0.5, fill 0,"));
}

TEST(PlanTest, ASimulationSaysWhatBlocks) {
  Plan::Spec spec = OneRelay();
  spec.figures.predicted_seconds = 0.5;
  ASSERT_OK_AND_ASSIGN(Plan plan, Plan::Create(spec));
  const Digest id = plan.id();
  const Plan simulated = std::move(plan).WithPrediction(0.75);
  EXPECT_EQ(simulated.id(), id);
  EXPECT_EQ(simulated.figures().predicted_seconds, 0.75);
  EXPECT_EQ(simulated.figures().excess.blocking_seconds, 0.25);
  EXPECT_THAT(ToText(simulated), HasSubstr("blocking 0.25"));
}

}  // namespace
}  // namespace crossmesh
