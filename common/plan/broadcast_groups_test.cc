#include "common/plan/broadcast_groups.h"

#include "common/base/check.h"
#include "common/plan/proof.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A tensor in two shards, each with two replicas. Ranks: a.0 0, a.1 1, b.0 2, b.1 3, c.0 4, c.1 5.
// Class 0 goes from a.0 to b.0 and on to c.0, class 1 the same way on devices 1.
Plan::Spec TwoShards() {
  auto tensors = std::make_shared<const TensorTable>(
      TableOf({TensorOf("[8, 4]: x=2 on a.0-1 [x, -] -> r=2,x=2 on b.0-1,c.0-1 [x, -]")}, {"r"}));
  auto slicing = Slicing::Create(*tensors);
  CHECK_OK(slicing);
  Plan::Spec spec{.tensors = std::move(tensors),
                  .slicing = std::make_shared<const Slicing>(*std::move(slicing))};
  spec.relays = {
      {.slice_class = 0, .root = 0, .begin = 0, .end = 64, .first_hop = 0, .hop_count = 2},
      {.slice_class = 1, .root = 1, .begin = 0, .end = 64, .first_hop = 2, .hop_count = 2}};
  spec.hops = {{.from = 0, .to = 2},
               {.from = 2, .to = 4, .period = 1},
               {.from = 1, .to = 3},
               {.from = 3, .to = 5, .period = 1}};
  return spec;
}

IdSetList SetsOf(const std::vector<std::vector<DeviceRank>>& sets) {
  IdSetList list;
  for (const std::vector<DeviceRank>& set : sets) list.Add(set);
  return list;
}

std::vector<std::vector<DeviceRank>> Found(const std::vector<Relay>& relays,
                                           const std::vector<Hop>& hops) {
  const IdSetList groups = FindBroadcastGroups(relays, hops, 8);
  std::vector<std::vector<DeviceRank>> found;
  for (int32_t i = 0; i < groups.size(); ++i) {
    found.emplace_back(groups[i].begin(), groups[i].end());
  }
  return found;
}

WorkerPart PartOf(const Plan::Spec& spec, const std::vector<DeviceId>& devices) {
  auto plan = Plan::Create(spec);
  CHECK_OK(plan);
  std::vector<DeviceId> others;
  for (const DeviceId& device : plan->tensors().devices()) {
    if (std::ranges::find(devices, device) == devices.end()) others.push_back(device);
  }
  auto parts = CutParts(*plan, {devices, others});
  CHECK_OK(parts);
  return parts->front();
}

absl::Status ProofWithGroups(Plan::Spec spec) {
  auto plan = Plan::Create(std::move(spec));
  if (!plan.ok()) return plan.status();
  return Prove(*plan).status();
}

TEST(BroadcastGroupsTest, AreShardsWithTheirReplicas) {
  const Plan::Spec spec = TwoShards();
  EXPECT_THAT(Found(spec.relays, spec.hops),
              ElementsAre(ElementsAre(0, 2, 4), ElementsAre(1, 3, 5)));
}

TEST(BroadcastGroupsTest, MayHaveSeveralRoots) {
  EXPECT_THAT(Found({{.root = 0, .first_hop = 0, .hop_count = 2},
                     {.root = 1, .first_hop = 2, .hop_count = 2}},
                    {{0, 1}, {0, 2}, {1, 2}, {2, 0}}),
              ElementsAre(ElementsAre(0, 1, 2)));
}

TEST(BroadcastGroupsTest, HaveThreeDevicesAtLeast) {
  EXPECT_THAT(Found({{.root = 0, .first_hop = 0, .hop_count = 1}}, {{0, 1}}), IsEmpty());
}

TEST(BroadcastGroupsTest, ExchangeNothingWithOthers) {
  const std::vector<Hop> hops = {{0, 1}, {1, 2}, {2, 3}};
  EXPECT_THAT(Found({{.root = 0, .first_hop = 0, .hop_count = 2},
                     {.root = 2, .first_hop = 2, .hop_count = 1}},
                    hops),
              IsEmpty());
  // What goes to some of them only is as bad.
  EXPECT_THAT(Found({{.root = 0, .first_hop = 0, .hop_count = 2},
                     {.root = 0, .first_hop = 2, .hop_count = 1}},
                    {{0, 1}, {1, 2}, {0, 2}}),
              IsEmpty());
}

TEST(BroadcastGroupsTest, AreProvenOfPlansAndParts) {
  Plan::Spec spec = TwoShards();
  spec.broadcast_groups = SetsOf({{1, 3, 5}});
  EXPECT_OK(ProofWithGroups(spec));
  const WorkerPart part = PartOf(spec, {{"b", 0}, {"b", 1}});
  EXPECT_OK(ProveBroadcastGroups(part));
  EXPECT_THAT(part.BroadcastGroupOf(3), ElementsAre(1, 3, 5));
  EXPECT_THAT(part.BroadcastGroupOf(2), IsEmpty());
}

TEST(BroadcastGroupsTest, ArePartOfThePlansId) {
  ASSERT_OK_AND_ASSIGN(const Plan without, Plan::Create(TwoShards()));
  Plan::Spec spec = TwoShards();
  spec.broadcast_groups = SetsOf({{1, 3, 5}});
  ASSERT_OK_AND_ASSIGN(const Plan with, Plan::Create(spec));
  EXPECT_NE(with.id(), without.id());
  EXPECT_THAT(ToText(with), HasSubstr("broadcast groups 1\n  a.1,b.1,c.1\n"));
}

TEST(BroadcastGroupsTest, GoWithThePartsOfTheirDevices) {
  Plan::Spec spec = TwoShards();
  spec.broadcast_groups = SetsOf({{0, 2, 4}, {1, 3, 5}});
  const WorkerPart part = PartOf(spec, {{"b", 0}, {"b", 1}});
  EXPECT_EQ(part.spec().broadcast_groups.size(), 2u);
  ASSERT_OK_AND_ASSIGN(const WorkerPart of_one, CutPart(part, {3}));
  EXPECT_EQ(of_one.spec().broadcast_groups.size(), 1u);
  EXPECT_THAT(of_one.BroadcastGroupOf(3), ElementsAre(1, 3, 5));
  EXPECT_THAT(PartOf(spec, {{"c", 0}}).BroadcastGroupOf(4), ElementsAre(0, 2, 4));
}

TEST(BroadcastGroupsTest, MustHaveAllDevicesOfTheirRelays) {
  Plan::Spec spec = TwoShards();
  spec.broadcast_groups = SetsOf({{1, 3, 4}});
  EXPECT_THAT(ProofWithGroups(spec),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("relay 0: expected all of its devices in one")));
  EXPECT_THAT(ProveBroadcastGroups(PartOf(spec, {{"c", 0}})),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("relay 0")));
}

TEST(BroadcastGroupsTest, MustGetAllOfTheirRelays) {
  Plan::Spec spec = TwoShards();
  spec.broadcast_groups = SetsOf({{0, 1, 2, 3, 4, 5}});
  EXPECT_THAT(ProofWithGroups(spec),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("6 devices with its root, found 3")));
  EXPECT_THAT(ProveBroadcastGroups(PartOf(spec, {{"b", 0}, {"b", 1}})),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("found 1")));
}

TEST(BroadcastGroupsTest, AreLeftAloneByTheLastRelayAsWell) {
  Plan::Spec spec = TwoShards();
  spec.broadcast_groups = SetsOf({{0, 2, 4}});
  ASSERT_OK_AND_ASSIGN(const Plan apart, Plan::Create(spec));
  EXPECT_OK(ProveBroadcastGroups(apart));
  spec.hops[3].to = 4;
  ASSERT_OK_AND_ASSIGN(const Plan touching, Plan::Create(spec));
  EXPECT_THAT(ProveBroadcastGroups(touching),
              StatusIs(absl::StatusCode::kInternal,
                       "relay 1: expected all of its devices in one broadcast group or in none, "
                       "found a.1 and c.0 apart"));
}

TEST(BroadcastGroupsTest, OfPartsMustNotOverlapNorBeSmallEither) {
  const WorkerPart part = PartOf(TwoShards(), {{"b", 0}, {"b", 1}});
  const auto proof_with = [&](const std::vector<std::vector<DeviceRank>>& groups) {
    WorkerPart::Spec spec = part.spec();
    for (const std::vector<DeviceRank>& group : groups) {
      spec.broadcast_groups.push_back(spec.device_sets.size());
      spec.device_sets.Add(group);
    }
    const auto changed = WorkerPart::Create(std::move(spec));
    CHECK_OK(changed);
    return ProveBroadcastGroups(*changed);
  };
  EXPECT_OK(proof_with({{0, 2, 4}, {1, 3, 5}}));
  EXPECT_THAT(proof_with({{0, 2, 4}, {1, 3, 4}}),
              StatusIs(absl::StatusCode::kInternal,
                       "device c.0: expected in one broadcast group, found in two"));
  EXPECT_THAT(proof_with({{0, 2}}),
              StatusIs(absl::StatusCode::kInternal,
                       "broadcast group: expected at least 3 devices, found 2"));
}

TEST(BroadcastGroupsTest, MustNotOverlapNorBeSmall) {
  Plan::Spec spec = TwoShards();
  spec.broadcast_groups = SetsOf({{0, 2, 4}, {0, 2, 4}});
  EXPECT_THAT(ProofWithGroups(spec),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("device a.0: expected in one")));
  spec.broadcast_groups = SetsOf({{0, 2}});
  EXPECT_THAT(ProofWithGroups(spec),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("expected at least 3 devices")));
  spec.broadcast_groups = SetsOf({{0, 2, 6}});
  EXPECT_THAT(ProofWithGroups(spec),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("ascending devices of the plan")));
}

}  // namespace
}  // namespace crossmesh
