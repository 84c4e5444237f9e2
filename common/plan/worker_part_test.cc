#include "common/plan/worker_part.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/plan/proof.h"
#include "common/plan/testing/chain_plan.h"
#include "common/plan/testing/device_sets.h"
#include "common/plan/testing/for_each_seed.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/tables.h"
#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Workers = std::vector<std::vector<DeviceId>>;

Plan RandomPlanOf(RandomSource& random) {
  auto tensors = std::make_shared<const TensorTable>(RandomTensorTable(random));
  auto slicing = Slicing::Create(*tensors);
  CHECK_OK(slicing);
  auto plan = Plan::Create(
      RandomPlan(random, tensors, std::make_shared<const Slicing>(*std::move(slicing))));
  CHECK_OK(plan);
  return *std::move(plan);
}

// Devices dealt to workers at random, some of which stay empty.
Workers RandomWorkers(RandomSource& random, const TensorTable& tensors) {
  Workers workers(random.Between(1, 5));
  for (const DeviceId& device : tensors.devices()) {
    workers[random.Below(static_cast<int64_t>(workers.size()))].push_back(device);
  }
  return workers;
}

// Ranks: a.0 0, a.1 1, b.0 2, b.1 3.
Plan PlanOfChains() {
  return ChainPlan(TensorOf("[8]: x=2 on a.0-1 [x] -> x=2 on b.0-1 [-]"),
                   {"a.0 > b.0 > b.1", "a.1 > b.1 > b.0"});
}

const Workers kTwoHosts = {{{"a", 0}, {"a", 1}}, {{"b", 0}, {"b", 1}, {"c", 9}}};
const Workers kFour = {{{"a", 0}}, {{"a", 1}}, {{"b", 0}}, {{"b", 1}}};

TEST(WorkerPartTest, HasTheRelaysThatTouchTheWorkersDevices) {
  const Plan plan = PlanOfChains();
  ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> parts, CutParts(plan, kTwoHosts));
  ASSERT_THAT(parts, SizeIs(2));
  const WorkerPart::Spec& a = parts[0].spec();
  EXPECT_EQ(a.plan, plan.id());
  EXPECT_THAT(a.devices, ElementsAre(0, 1));
  ASSERT_THAT(a.relays, SizeIs(2));
  ASSERT_THAT(a.hops, SizeIs(2));
  EXPECT_EQ(a.hops[1].to, 3);
  EXPECT_EQ(a.hops[1].channel, 1);
  EXPECT_THAT(parts[0].holders(a.relays[1].class_sets), ElementsAre(1));
  EXPECT_THAT(parts[0].receivers(a.relays[1].class_sets), ElementsAre(2, 3));
  // Both classes have the same receivers, which are there once.
  EXPECT_EQ(a.device_sets.size(), 3);
  EXPECT_THAT(parts[1].spec().hops, SizeIs(4));
  EXPECT_EQ(&parts[1].tensors(), &plan.tensors());
}

TEST(WorkerPartTest, DeviceWithoutOneWorkerIsNamed) {
  const Plan plan = PlanOfChains();
  EXPECT_THAT(CutParts(plan, {kFour[0], kFour[1], kFour[2]}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("b.1"), HasSubstr("expected a live worker"))));
  EXPECT_THAT(CutParts(plan, {kFour[0], kFour[1], kFour[2], kFour[3], kFour[0]}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("a.0")));
}

TEST(WorkerPartTest, PartsOfRandomPlansAreProvenByTheirWorkers) {
  ForEachSeed(1000, [&](RandomSource& random) {
    const Plan plan = RandomPlanOf(random);
    const Workers workers = RandomWorkers(random, plan.tensors());
    ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> parts, CutParts(plan, workers));
    ASSERT_THAT(parts, SizeIs(workers.size()));
    size_t copies = 0;
    std::map<ChannelIndex, std::set<Digest>> orders;
    for (const WorkerPart& part : parts) {
      ASSERT_OK_AND_ASSIGN(const Slicing slicing,
                           Slicing::Create(part.tensors(), {.devices = part.spec().devices}));
      ASSERT_OK(ProvePart(part, slicing));
      ASSERT_OK(ProvePart(part, plan.slicing()));
      copies += part.spec().copies.size();
      for (const auto& [channel, digest] : ChannelOrderDigests(part)) {
        orders[channel].insert(digest);
      }
    }
    ASSERT_EQ(copies, plan.copies().size());
    ASSERT_EQ(orders.size(), ChannelsOf(plan).ends.size());
    for (const auto& [channel, digests] : orders) ASSERT_THAT(digests, SizeIs(1)) << channel;
  });
}

// Cut in two steps, worker by worker and then device by device.
TEST(WorkerPartTest, TheDevicesOfAPartGetWhatThePlanHasForThem) {
  ForEachSeed(300, [&](RandomSource& random) {
    const Plan plan = RandomPlanOf(random);
    Workers each_alone;
    for (const DeviceId& device : plan.tensors().devices()) each_alone.push_back({device});
    ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> expected, CutParts(plan, each_alone));
    ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> parts,
                         CutParts(plan, RandomWorkers(random, plan.tensors())));
    for (const WorkerPart& part : parts) {
      ASSERT_OK_AND_ASSIGN(const WorkerPart whole, CutPart(part, part.spec().devices));
      EXPECT_EQ(whole.digest(), part.digest());
      for (const DeviceRank device : part.spec().devices) {
        ASSERT_OK_AND_ASSIGN(const WorkerPart of_device, CutPart(part, {device}));
        EXPECT_EQ(of_device.digest(), expected[device].digest()) << device;
      }
    }
  });
}

TEST(WorkerPartTest, ADeviceOfAnotherWorkerCannotBeCutOut) {
  const Plan plan = PlanOfChains();
  ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> parts, CutParts(plan, kTwoHosts));
  EXPECT_THAT(CutPart(parts[0], {1, 2}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("the worker's 2 devices"), HasSubstr("rank 2"))));
  EXPECT_THAT(CutPart(parts[0], {1, 0}), IsRefused("ascending"));
}

// The part of b.0 and b.1 of the chains, with a fault.
template <typename Change>
void ExpectRefused(Change change, const ::testing::Matcher<std::string>& message) {
  const Plan plan = PlanOfChains();
  ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> parts, CutParts(plan, kTwoHosts));
  WorkerPart::Spec spec = parts[1].spec();
  change(spec);
  ASSERT_OK_AND_ASSIGN(const WorkerPart part, WorkerPart::Create(std::move(spec)));
  EXPECT_THAT(ProvePart(part, plan.slicing()), StatusIs(absl::StatusCode::kInternal, message));
}

TEST(ProvePartTest, FindsADroppedRelay) {
  ExpectRefused(
      [](WorkerPart::Spec& spec) {
        spec.relays.resize(1);
        spec.hops.resize(2);
      },
      AllOf(HasSubstr("class 1"), HasSubstr("nothing from byte 0")));
}

TEST(ProvePartTest, FindsAWrongRange) {
  ExpectRefused([](WorkerPart::Spec& spec) { spec.relays[0].begin = 4; }, HasSubstr("[4, 16)"));
  ExpectRefused([](WorkerPart::Spec& spec) { spec.relays[0].end = 20; }, HasSubstr("at most"));
  ExpectRefused([](WorkerPart::Spec& spec) { spec.relays[0].end = 14; }, HasSubstr("at 14"));
}

TEST(ProvePartTest, FindsAHopFromWhereNothingCanBe) {
  ExpectRefused([](WorkerPart::Spec& spec) { spec.relays[0].root = 1; }, HasSubstr("a.1"));
  ExpectRefused([](WorkerPart::Spec& spec) { spec.hops[0].from = 1; }, HasSubstr("from a.1"));
  ExpectRefused([](WorkerPart::Spec& spec) { std::swap(spec.hops[0], spec.hops[1]); },
                HasSubstr("from b.0"));
}

// The part that b.0 and b.1 have of a plan that need not be good.
absl::Status ProofOfB(const TensorText& tensor, std::vector<Relay> relays, std::vector<Hop> hops) {
  auto tensors = std::make_shared<const TensorTable>(TableOf({tensor}));
  ASSIGN_OR_RETURN(Slicing slicing, Slicing::Create(*tensors));
  const auto shared = std::make_shared<const Slicing>(std::move(slicing));
  ASSIGN_OR_RETURN(const Plan plan, Plan::Create({.tensors = tensors,
                                                  .slicing = shared,
                                                  .relays = std::move(relays),
                                                  .hops = std::move(hops)}));
  ASSIGN_OR_RETURN(const std::vector<WorkerPart> parts, CutParts(plan, kTwoHosts));
  return ProvePart(parts[1], *shared);
}

TEST(ProvePartTest, FindsAHopFromAnotherWorkersHolderThatIsNotTheRoot) {
  const std::vector<Relay> relay = {
      {.slice_class = 0, .root = 0, .begin = 0, .end = 32, .first_hop = 0, .hop_count = 2}};
  const TensorText holds = TensorOf("[8]: x=2 on a.0-1 [-] -> x=2 on b.0-1 [-]");
  EXPECT_OK(ProofOfB(holds, relay, {{.from = 0, .to = 2}, {.from = 0, .to = 3}}));
  EXPECT_THAT(ProofOfB(holds, relay, {{.from = 0, .to = 2}, {.from = 1, .to = 3}}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("one from a.1 to b.1")));
  // A holder that needs it as well copies it, and forwards nothing.
  const TensorText needs = TensorOf("[8]: x=2 on a.0-1 [-] -> x=3 on a.1,b.0-1 [-]");
  EXPECT_OK(ProofOfB(needs, relay, {{.from = 0, .to = 2}, {.from = 2, .to = 3}}));
  EXPECT_THAT(ProofOfB(needs, relay, {{.from = 0, .to = 2}, {.from = 1, .to = 3}}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("one from a.1 to b.1")));
}

TEST(ProvePartTest, FindsAHopFromWhereOnlyAnotherRelayWent) {
  const std::vector<Relay> halves = {
      {.slice_class = 0, .root = 0, .begin = 0, .end = 16, .first_hop = 0, .hop_count = 2},
      {.slice_class = 0, .root = 0, .begin = 16, .end = 32, .first_hop = 2, .hop_count = 2}};
  const TensorText tensor = TensorOf("[8]: x=2 on a.0-1 [-] -> x=2 on b.0-1 [-]");
  std::vector<Hop> hops = {{.from = 0, .to = 2},
                           {.from = 2, .to = 3},
                           {.from = 0, .to = 2, .place = 1},
                           {.from = 2, .to = 3, .place = 1}};
  EXPECT_OK(ProofOfB(tensor, halves, hops));
  std::swap(hops[2], hops[3]);
  EXPECT_THAT(ProofOfB(tensor, halves, hops),
              StatusIs(absl::StatusCode::kInternal,
                       AllOf(HasSubstr("relay 1"), HasSubstr("one from b.0 to b.1"))));
}

TEST(ProvePartTest, FindsABroadcastGroupThatItsRelaysLeave) {
  ExpectRefused(
      [](WorkerPart::Spec& spec) {
        spec.broadcast_groups = {spec.device_sets.size()};
        spec.device_sets.Add(std::vector<DeviceRank>{1, 2, 3});
      },
      HasSubstr("relay 0: expected all of its devices in one broadcast group"));
}

TEST(ProvePartTest, FindsAReceiverThatDoesNotNeedIt) {
  ExpectRefused([](WorkerPart::Spec& spec) { spec.hops[1].to = 1; }, HasSubstr("does not need"));
}

TEST(ProvePartTest, FindsANeedlessCopy) {
  ExpectRefused([](WorkerPart::Spec& spec) { spec.copies.push_back({0, 2}); },
                HasSubstr("both holds and needs"));
}

TEST(ProvePartTest, FindsPlacesAndChannelsOutOfOrder) {
  ExpectRefused([](WorkerPart::Spec& spec) { spec.hops[0].place = 1; }, HasSubstr("place 0"));
  ExpectRefused(
      [](WorkerPart::Spec& spec) { std::swap(spec.hops[0].channel, spec.hops[1].channel); },
      HasSubstr("ascending"));
}

TEST(ProvePartTest, FindsAClassThatTheLayoutsDoNotGive) {
  ExpectRefused([](WorkerPart::Spec& spec) { ReplaceFirstSet(spec, {0, 1}); },
                HasSubstr("class 0"));
}

TEST(ProvePartTest, FindsASharedStorageThatIsOverwrittenInPlace) {
  auto tensors = std::make_shared<const TensorTable>(
      TableOf({TensorOf("[8]: x=1 on a.0 [-] -> x=2 on a.0-1 [x]")}));
  WorkerPart::Spec spec{
      .tensors = tensors, .devices = {0}, .binding = BindingMode::kInPlace, .shared_storage = true};
  ASSERT_OK_AND_ASSIGN(const WorkerPart part, WorkerPart::Create(std::move(spec)));
  ASSERT_OK_AND_ASSIGN(const Slicing slicing, Slicing::Create(*tensors, {.devices = {0}}));
  EXPECT_THAT(ProvePart(part, slicing),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("a.0")));
}

TEST(WorkerPartTest, RefusesWhatIsOutOfBounds) {
  const Plan plan = PlanOfChains();
  ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> parts, CutParts(plan, kTwoHosts));
  const auto expect_refused = [&](auto change) {
    WorkerPart::Spec spec = parts[1].spec();
    change(spec);
    EXPECT_THAT(WorkerPart::Create(std::move(spec)), IsRefused("expected"));
  };
  expect_refused([](WorkerPart::Spec& s) { s.tensors = nullptr; });
  expect_refused([](WorkerPart::Spec& s) { s.devices = {3, 2}; });
  expect_refused([](WorkerPart::Spec& s) { s.devices = {4}; });
  expect_refused([](WorkerPart::Spec& s) { s.devices = {}; });
  expect_refused([](WorkerPart::Spec& s) { ReplaceFirstSet(s, {-1}); });
  expect_refused([](WorkerPart::Spec& s) { s.class_sets[0].receivers = 3; });
  expect_refused([](WorkerPart::Spec& s) { s.class_sets[0].conversion = 0; });
  expect_refused([](WorkerPart::Spec& s) { s.class_sets[0].conversion = -2; });
  expect_refused([](WorkerPart::Spec& s) { s.relays[0].class_sets = 2; });
  expect_refused([](WorkerPart::Spec& s) { s.relays[0].root = 4; });
  expect_refused([](WorkerPart::Spec& s) { s.relays[0].begin = -1; });
  expect_refused([](WorkerPart::Spec& s) { s.relays[0].end = 0; });
  expect_refused([](WorkerPart::Spec& s) { s.relays[1].relay = 0; });
  expect_refused([](WorkerPart::Spec& s) { s.relays[1].hop_count = 3; });
  expect_refused([](WorkerPart::Spec& s) { s.relays[1].first_hop = 0; });
  expect_refused([](WorkerPart::Spec& s) { s.relays.pop_back(); });
  expect_refused([](WorkerPart::Spec& s) { s.hops[0].from = 4; });
  expect_refused([](WorkerPart::Spec& s) { s.hops[0].to = 1; });
  expect_refused([](WorkerPart::Spec& s) { s.hops[0].channel = -1; });
  expect_refused([](WorkerPart::Spec& s) { s.hops[0].place = -1; });
  expect_refused([](WorkerPart::Spec& s) { s.copies.push_back({2, 2}); });
  expect_refused([](WorkerPart::Spec& s) { s.copies.push_back({0, 0}); });
  expect_refused([](WorkerPart::Spec& s) { s.chunk_bytes = 100; });
}

TEST(WorkerPartTest, TheDigestTellsPartsApart) {
  const Plan plan = PlanOfChains();
  ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> parts, CutParts(plan, kFour));
  std::set<Digest> digests;
  for (const WorkerPart& part : parts) digests.insert(part.digest());
  EXPECT_THAT(digests, SizeIs(4));
  WorkerPart::Spec spec = parts[2].spec();
  EXPECT_EQ(WorkerPart::Create(spec)->digest(), parts[2].digest());
  spec.hops[0].period = 1;
  EXPECT_NE(WorkerPart::Create(spec)->digest(), parts[2].digest());
}

TEST(WorkerPartTest, AWorkerOutsideThePlanHasAnEmptyPart) {
  const Plan plan = PlanOfChains();
  Workers workers = kTwoHosts;
  workers.push_back({{"z", 0}});
  ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> parts, CutParts(plan, workers));
  EXPECT_THAT(parts[2].spec().relays, IsEmpty());
  EXPECT_THAT(parts[2].spec().devices, IsEmpty());
  EXPECT_OK(ProvePart(parts[2], plan.slicing()));
}

}  // namespace
}  // namespace crossmesh
