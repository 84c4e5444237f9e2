#include "common/plan/proof.h"

#include "common/base/check.h"
#include "common/plan/testing/for_each_seed.h"
#include "common/plan/testing/random_tensors.h"
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

using ::testing::AllOf;
using ::testing::HasSubstr;

Plan::Spec SpecOf(TensorTable table) {
  auto tensors = std::make_shared<const TensorTable>(std::move(table));
  auto slicing = Slicing::Create(*tensors);
  CHECK_OK(slicing);
  return {.tensors = std::move(tensors),
          .slicing = std::make_shared<const Slicing>(*std::move(slicing))};
}

// Ranks: a.0 0, a.1 1, b.0 2, b.1 3. Class 0: 64 bytes from a.0, class 1: 64 bytes from a.1, both
// to b.0 and b.1. Each goes down a chain.
Plan::Spec Chains() {
  Plan::Spec spec =
      SpecOf(TableOf({TensorOf("[8, 4]: x=2 on a.0-1 [x, -] -> x=2 on b.0-1 [-, -]")}));
  spec.relays = {
      {.slice_class = 0, .root = 0, .begin = 0, .end = 64, .first_hop = 0, .hop_count = 2},
      {.slice_class = 1, .root = 1, .begin = 0, .end = 64, .first_hop = 2, .hop_count = 2}};
  spec.hops = {
      {.from = 0, .to = 2}, {.from = 2, .to = 3}, {.from = 1, .to = 3}, {.from = 3, .to = 2}};
  return spec;
}

absl::StatusOr<Proof> ProofOf(Plan::Spec spec, const ProofLimits& limits = {}) {
  auto plan = Plan::Create(std::move(spec));
  if (!plan.ok()) return plan.status();
  return Prove(*plan, limits);
}

void ExpectInternal(Plan::Spec spec, const ::testing::Matcher<std::string>& message) {
  const auto plan = Plan::Create(std::move(spec));
  ASSERT_OK(plan);
  EXPECT_THAT(Prove(*plan), StatusIs(absl::StatusCode::kInternal, message));
}

TEST(ProofTest, AcceptsAGoodPlanAndCountsIt) {
  ASSERT_OK_AND_ASSIGN(const Proof proof, ProofOf(Chains(), {.staging_bytes = 7}));
  EXPECT_EQ(proof.classes, 2);
  EXPECT_EQ(proof.relays, 2);
  EXPECT_EQ(proof.hops, 4);
  EXPECT_EQ(proof.channels, 4);
  EXPECT_EQ(proof.destination_bytes, 256);
  EXPECT_EQ(proof.peak_device_bytes, 263);
  EXPECT_THAT(proof.peak_device, AllOf(HasSubstr("b.0"), HasSubstr("destination 256")));
}

TEST(ProofTest, FindsADroppedRelay) {
  Plan::Spec spec = Chains();
  spec.relays.pop_back();
  spec.hops.resize(2);
  ExpectInternal(spec, AllOf(HasSubstr("class 1"), HasSubstr("b.0"), HasSubstr("all 64 bytes")));
}

TEST(ProofTest, FindsADroppedHop) {
  Plan::Spec spec = Chains();
  spec.relays[1].hop_count = 1;
  spec.hops.resize(3);
  ExpectInternal(spec, AllOf(HasSubstr("class 1"), HasSubstr("b.0"), HasSubstr("from byte 0")));
}

TEST(ProofTest, FindsADoubledRange) {
  Plan::Spec spec = Chains();
  spec.relays.push_back(
      {.slice_class = 0, .root = 0, .begin = 32, .end = 64, .first_hop = 4, .hop_count = 1});
  spec.hops.push_back({.from = 0, .to = 2, .place = 1});
  ExpectInternal(spec, AllOf(HasSubstr("bytes [32, 64) of relay 2"), HasSubstr("b.0"),
                             HasSubstr("every byte once")));
}

TEST(ProofTest, FindsAGapAndAMissingEnd) {
  Plan::Spec spec = Chains();
  spec.relays[0].begin = 4;
  ExpectInternal(spec, AllOf(HasSubstr("bytes [4, 64) of relay 0"), HasSubstr("from 0 on")));
  spec = Chains();
  spec.relays[0].end = 60;
  ExpectInternal(spec, AllOf(HasSubstr("class 0"), HasSubstr("from byte 60")));
}

TEST(ProofTest, FindsARootThatDoesNotHoldTheClass) {
  Plan::Spec spec = Chains();
  spec.relays[0].root = 1;
  spec.hops[0].from = 1;
  ExpectInternal(spec, AllOf(HasSubstr("relay 0"), HasSubstr("root"), HasSubstr("a.1")));
}

TEST(ProofTest, FindsAHopFromWhereNothingIs) {
  Plan::Spec spec = Chains();
  std::swap(spec.hops[0], spec.hops[1]);
  ExpectInternal(spec, AllOf(HasSubstr("relay 0"), HasSubstr("one from b.0 to b.1")));
}

TEST(ProofTest, FindsAHopFromWhereOnlyAnotherRelayWent) {
  Plan::Spec spec = SpecOf(TableOf({TensorOf("[8]: x=1 on a.0 [-] -> x=2 on b.0-1 [-]")}));
  spec.relays = {
      {.slice_class = 0, .root = 0, .begin = 0, .end = 16, .first_hop = 0, .hop_count = 2},
      {.slice_class = 0, .root = 0, .begin = 16, .end = 32, .first_hop = 2, .hop_count = 2}};
  spec.hops = {{.from = 0, .to = 1},
               {.from = 1, .to = 2},
               {.from = 0, .to = 1, .place = 1},
               {.from = 1, .to = 2, .place = 1}};
  EXPECT_OK(ProofOf(spec));
  std::swap(spec.hops[2], spec.hops[3]);
  ExpectInternal(spec, AllOf(HasSubstr("relay 1"), HasSubstr("one from b.0 to b.1")));
}

TEST(ProofTest, FindsAHopFromAHolderThatIsNotTheRoot) {
  Plan::Spec spec = SpecOf(TableOf({TensorOf("[8]: x=2 on a.0-1 [-] -> x=2 on b.0-1 [-]")}));
  spec.relays = {
      {.slice_class = 0, .root = 0, .begin = 0, .end = 32, .first_hop = 0, .hop_count = 2}};
  spec.hops = {{.from = 0, .to = 2}, {.from = 1, .to = 3}};
  ExpectInternal(spec, HasSubstr("one from a.1 to b.1"));
}

TEST(ProofTest, FindsAReceiverThatDoesNotNeedTheClass) {
  Plan::Spec spec = Chains();
  spec.hops.insert(spec.hops.begin() + 2, {.from = 2, .to = 1});
  spec.relays[0].hop_count = 3;
  spec.relays[1].first_hop = 3;
  ExpectInternal(spec, AllOf(HasSubstr("a.1"), HasSubstr("does not need")));
}

// a.0 holds rows 0 to 3 and needs rows 0 and 1, b.0 needs rows 2 and 3.
Plan::Spec WithCopy() {
  Plan::Spec spec = SpecOf(TableOf({TensorOf("[4]: x=1 on a.0 [x] -> x=2 on a.0,b.0 [x]")}));
  spec.relays = {
      {.slice_class = 1, .root = 0, .begin = 0, .end = 8, .first_hop = 0, .hop_count = 1}};
  spec.hops = {{.from = 0, .to = 1}};
  spec.copies = {{.slice_class = 0, .device = 0}};
  return spec;
}

TEST(ProofTest, CopiesAreWhereADeviceHoldsWhatItNeeds) {
  EXPECT_OK(ProofOf(WithCopy()));
  Plan::Spec missing = WithCopy();
  missing.copies.clear();
  ExpectInternal(missing, AllOf(HasSubstr("class 0"), HasSubstr("expected a copy")));
  Plan::Spec twice = WithCopy();
  twice.copies.push_back(twice.copies[0]);
  ExpectInternal(twice, HasSubstr("found two"));
  Plan::Spec needless = WithCopy();
  needless.copies.push_back({.slice_class = 1, .device = 1});
  ExpectInternal(needless, AllOf(HasSubstr("class 1"), HasSubstr("b.0")));
}

TEST(ProofTest, FindsACutInsideAnElement) {
  Plan::Spec spec = Chains();
  spec.relays[0].end = 30;
  spec.relays.push_back(
      {.slice_class = 0, .root = 0, .begin = 30, .end = 64, .first_hop = 4, .hop_count = 2});
  spec.hops.push_back({.from = 0, .to = 2, .place = 1});
  spec.hops.push_back({.from = 2, .to = 3, .place = 1});
  ExpectInternal(spec, AllOf(HasSubstr("relay 0"), HasSubstr("byte 30")));
  spec.relays[0].end = spec.relays[2].begin = 32;
  EXPECT_OK(ProofOf(spec));
}

TEST(ProofTest, ElementsOfMixedSizesAreCutWhereTheyAre) {
  // 3 bytes of U8, then 8 of F32: 7 is a boundary, 4 and 8 are not.
  Plan::Spec spec =
      SpecOf(TableOf({TensorOf("[3]: x=1 on a.0 [-] -> x=1 on b.0 [-]", DataType::kU8),
                      TensorOf("[2]: x=1 on a.0 [-] -> x=1 on b.0 [-]")}));
  spec.hops = {{.from = 0, .to = 1}, {.from = 0, .to = 1, .place = 1}};
  for (int64_t cut = 1; cut < 11; ++cut) {
    spec.relays = {
        {.slice_class = 0, .root = 0, .begin = 0, .end = cut, .first_hop = 0, .hop_count = 1},
        {.slice_class = 0, .root = 0, .begin = cut, .end = 11, .first_hop = 1, .hop_count = 1}};
    EXPECT_EQ(ProofOf(spec).ok(), cut <= 3 || cut == 7) << cut;
  }
}

TEST(ProofTest, FindsPlacesWithAGapOrTwice) {
  Plan::Spec spec = Chains();
  spec.hops[2].place = 1;
  ExpectInternal(spec, AllOf(HasSubstr("a.1>b.1"), HasSubstr("place 1")));
  spec = Chains();
  spec.relays[0].end = 32;
  spec.relays.push_back(
      {.slice_class = 0, .root = 0, .begin = 32, .end = 64, .first_hop = 4, .hop_count = 2});
  spec.hops.push_back({.from = 0, .to = 2, .place = 0});
  spec.hops.push_back({.from = 2, .to = 3, .place = 1});
  ExpectInternal(spec, AllOf(HasSubstr("a.0>b.0"), HasSubstr("every place once")));
}

// Two halves of one class, needed by ranks 1 to 4: one goes 0>1>2>3>4, the other 0>3>4>1>2. They
// share the channels 1>2 and 3>4.
Plan::Spec Crossing() {
  Plan::Spec spec = SpecOf(TableOf({TensorOf("[8]: x=1 on a.0 [-] -> x=4 on b.0-3 [-]")}));
  spec.relays = {{.begin = 0, .end = 16, .first_hop = 0, .hop_count = 4},
                 {.begin = 16, .end = 32, .first_hop = 4, .hop_count = 4}};
  spec.hops = {{.from = 0, .to = 1}, {.from = 1, .to = 2}, {.from = 2, .to = 3},
               {.from = 3, .to = 4}, {.from = 0, .to = 3}, {.from = 3, .to = 4},
               {.from = 4, .to = 1}, {.from = 1, .to = 2}};
  return spec;
}

TEST(ProofTest, FindsRelaysThatWaitForEachOther) {
  Plan::Spec spec = Crossing();
  Hop& first_in_12 = spec.hops[1];
  Hop& first_in_34 = spec.hops[3];
  Hop& second_in_34 = spec.hops[5];
  Hop& second_in_12 = spec.hops[7];
  second_in_12.place = 1;
  second_in_34.place = 1;
  EXPECT_OK(ProofOf(spec));
  // Each channel prefers the relay that comes to it later: no order of hops has this.
  std::swap(first_in_12.place, second_in_12.place);
  ExpectInternal(spec, AllOf(HasSubstr("circle"), HasSubstr("class 0")));
  // The second relay first, everywhere.
  std::swap(first_in_34.place, second_in_34.place);
  EXPECT_OK(ProofOf(spec));
  // Each channel prefers the relay that comes to it earlier.
  std::swap(first_in_12.place, second_in_12.place);
  EXPECT_OK(ProofOf(spec));
}

TEST(ProofTest, FindsASharedStorageThatIsOverwrittenInPlace) {
  Plan::Spec spec = WithCopy();
  spec.binding = BindingMode::kInPlace;
  EXPECT_OK(ProofOf(spec));
  spec.shared_storage = true;
  EXPECT_THAT(ProofOf(spec), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      AllOf(HasSubstr("a.0"), HasSubstr("same tile"))));
  spec.binding = BindingMode::kShadow;
  EXPECT_OK(ProofOf(spec));
}

TEST(ProofTest, EveryDevicesSharedStorageIsLookedAtInPlace) {
  // Ranks a.0, b.0, c.0: one has a source only, one has a destination only, and b.0 has both, whose
  // tile moves.
  for (const char* tensor : {"[4]: x=2 on a.0,b.0 [x] -> x=2 on b.0,c.0 [x]",
                             "[4]: x=2 on b.0,c.0 [x] -> x=2 on a.0,b.0 [x]"}) {
    Plan::Spec spec = SpecOf(TableOf({TensorOf(tensor)}));
    for (ClassIndex c = 0; c < 2; ++c) {
      const DeviceRank from = spec.slicing->holders(c)[0], to = spec.slicing->receivers(c)[0];
      spec.relays.push_back(
          {.slice_class = c, .root = from, .begin = 0, .end = 8, .first_hop = c, .hop_count = 1});
      spec.hops.push_back({.from = from, .to = to});
    }
    spec.shared_storage = true;
    EXPECT_OK(ProofOf(spec));
    spec.binding = BindingMode::kInPlace;
    EXPECT_THAT(ProofOf(spec), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        AllOf(HasSubstr("b.0"), HasSubstr("same tile"))))
        << tensor;
  }
}

TEST(ProofTest, SharedStorageInPlaceIsFineWhereTilesStay) {
  Plan::Spec spec = SpecOf(TableOf({TensorOf("[4]: x=1 on a.0 [-] -> x=2 on a.0,b.0 [-]")}));
  spec.relays = {
      {.slice_class = 0, .root = 0, .begin = 0, .end = 16, .first_hop = 0, .hop_count = 1}};
  spec.hops = {{.from = 0, .to = 1}};
  spec.copies = {{.slice_class = 0, .device = 0}};
  spec.binding = BindingMode::kInPlace;
  spec.shared_storage = true;
  ASSERT_OK_AND_ASSIGN(const Proof proof, ProofOf(spec));
  EXPECT_EQ(proof.peak_device_bytes, 16);
}

TEST(ProofTest, CountsTheStorageThatIsMadeInPlaceWhereThereIsNoSource) {
  // a.0 keeps its 16 bytes, b.0 gets the same 16 and 32 of c.0, into a storage that is new there.
  Plan::Spec spec = SpecOf(TableOf({TensorOf("[4]: x=1 on a.0 [-] -> x=2 on a.0,b.0 [-]"),
                                    TensorOf("[8]: x=1 on c.0 [-] -> x=1 on b.0 [-]")}));
  spec.relays = {
      {.slice_class = 0, .root = 0, .begin = 0, .end = 16, .first_hop = 0, .hop_count = 1},
      {.slice_class = 1, .root = 2, .begin = 0, .end = 32, .first_hop = 1, .hop_count = 1}};
  spec.hops = {{.from = 0, .to = 1}, {.from = 2, .to = 1}};
  spec.copies = {{.slice_class = 0, .device = 0}};
  spec.binding = BindingMode::kInPlace;
  spec.shared_storage = true;
  ASSERT_OK_AND_ASSIGN(const Proof proof, ProofOf(spec));
  EXPECT_EQ(proof.peak_device_bytes, 48);
  EXPECT_THAT(proof.peak_device, AllOf(HasSubstr("b.0"), HasSubstr("destination 48")));
  EXPECT_OK(ProofOf(spec, {.device_bytes_max = 48}));
  EXPECT_THAT(ProofOf(spec, {.device_bytes_max = 47}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("b.0")));
}

TEST(ProofTest, ATileThatIsConvertedDoesNotStay) {
  Plan::Spec spec = SpecOf(TableOf(
      {TensorOf("[4]: x=1 on a.0 [-] -> x=1 on a.0 [-]", DataType::kF32, DataType::kBF16)}));
  spec.copies = {{0, 0}};
  spec.shared_storage = true;
  EXPECT_OK(ProofOf(spec));
  spec.binding = BindingMode::kInPlace;
  EXPECT_THAT(ProofOf(spec), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      AllOf(HasSubstr("a.0"), HasSubstr("of the same type"))));
}

TEST(ProofTest, CountsTheMemoryOfEachSideByItsType) {
  Plan::Spec spec = SpecOf(TableOf(
      {TensorOf("[4]: x=1 on a.0 [-] -> x=1 on a.0 [-]", DataType::kF32, DataType::kBF16)}));
  spec.copies = {{0, 0}};
  ASSERT_OK_AND_ASSIGN(const Proof proof, ProofOf(spec));
  EXPECT_EQ(proof.destination_bytes, 8);
  EXPECT_EQ(proof.peak_device_bytes, 16 + 2 * 8);
}

TEST(ProofTest, FindsMoreMemoryThanTheLimit) {
  EXPECT_OK(ProofOf(Chains(), {.device_bytes_max = 258, .staging_bytes = 2}));
  EXPECT_THAT(ProofOf(Chains(), {.device_bytes_max = 257, .staging_bytes = 2}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("b.0"), HasSubstr("at most 257"), HasSubstr("found 258"))));
}

TEST(ProofTest, ADestinationCountsTwiceWithItsShadow) {
  Plan::Spec spec = Chains();
  for (const bool shared : {false, true}) {
    spec.shared_storage = shared;
    spec.binding = BindingMode::kShadow;
    EXPECT_EQ(ProofOf(spec)->peak_device_bytes, 256) << shared;
    spec.binding = BindingMode::kInPlace;
    EXPECT_EQ(ProofOf(spec)->peak_device_bytes, 128) << shared;
  }
}

TEST(ProofTest, TheShadowOfASourceIsTheDestination) {
  Plan::Spec spec = SpecOf(TableOf({TensorOf("[4]: x=1 on a.0 [-] -> x=1 on a.0 [-]")}));
  spec.copies = {{0, 0}};
  EXPECT_EQ(ProofOf(spec)->peak_device_bytes, 16 + 2 * 16);
  spec.shared_storage = true;
  EXPECT_EQ(ProofOf(spec)->peak_device_bytes, 16 + 16);
}

TEST(ProofTest, FindsThatAScopedSlicingLacksClasses) {
  Plan::Spec spec = Chains();
  ASSERT_OK_AND_ASSIGN(Slicing scoped, Slicing::Create(*spec.tensors, {.devices = {0}}));
  spec.slicing = std::make_shared<const Slicing>(std::move(scoped));
  spec.relays.resize(1);
  spec.hops.resize(2);
  ExpectInternal(spec, HasSubstr("of its destination tile"));
}

// A random change that no plan survives: each names what it breaks.
void Break(RandomSource& random, Plan::Spec& spec) {
  Relay& relay = spec.relays[random.Below(static_cast<int64_t>(spec.relays.size()))];
  Hop& hop = spec.hops[random.Below(static_cast<int64_t>(spec.hops.size()))];
  const auto devices = static_cast<int64_t>(spec.tensors->devices().size());
  switch (random.Below(5)) {
    case 0:
      ++relay.begin;
      break;
    case 1:
      --relay.end;
      break;
    case 2:
      ++hop.place;
      break;
    case 3:
      hop.to = static_cast<DeviceRank>((hop.to + random.Between(1, devices - 1)) % devices);
      break;
    case 4:
      relay.slice_class =
          (relay.slice_class + 1) % static_cast<ClassIndex>(spec.slicing->classes().size());
      break;
  }
}

TEST(ProofTest, AcceptsRandomPlansAndRefusesBrokenOnes) {
  int broken = 0;
  ForEachSeed(3000, [&](RandomSource& random) {
    Plan::Spec good = SpecOf(RandomTensorTable(random));
    good = RandomPlan(random, good.tensors, good.slicing);
    ASSERT_OK(ProofOf(good));
    if (good.relays.empty() || good.slicing->classes().size() < 2) return;
    Plan::Spec bad = good;
    Break(random, bad);
    ASSERT_THAT(ProofOf(bad), StatusIs(absl::StatusCode::kInternal));
    ++broken;
  });
  EXPECT_GT(broken, 1000);
}

}  // namespace
}  // namespace crossmesh
