#include "common/base/check.h"
#include "common/plan/testing/tables.h"
#include "common/plan/worker_part.h"
#include "common/testing/status_matchers.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

Plan::Spec SpecOfTensor(const TensorText& tensor) {
  auto tensors = std::make_shared<const TensorTable>(TableOf({tensor}));
  auto slicing = Slicing::Create(*tensors);
  CHECK_OK(slicing);
  return {.tensors = std::move(tensors),
          .slicing = std::make_shared<const Slicing>(*std::move(slicing))};
}

// The part of the devices of one host, while another worker has the others.
WorkerPart PartOf(const Plan::Spec& spec, const std::string& host) {
  const auto plan = Plan::Create(spec);
  CHECK_OK(plan);
  std::vector<DeviceId> mine;
  std::vector<DeviceId> others;
  for (const DeviceId& device : plan->tensors().devices()) {
    (device.host == host ? mine : others).push_back(device);
  }
  const auto parts = CutParts(*plan, {mine, others});
  CHECK_OK(parts);
  return parts->front();
}

// The proof of the part after a change.
template <typename Change>
absl::Status ProofAfter(const Plan::Spec& plan, const std::string& host, Change change) {
  WorkerPart::Spec spec = PartOf(plan, host).spec();
  change(spec);
  const auto part = WorkerPart::Create(std::move(spec));
  CHECK_OK(part);
  return ProvePart(*part, *plan.slicing);
}

auto IsInternalPart(const ::testing::Matcher<std::string>& message) {
  return StatusIs(absl::StatusCode::kInternal, message);
}

// Ranks: a.0 0, b.0 1, b.1 2. The root sends to both itself: channel 0 is a.0>b.0, 1 is a.0>b.1.
Plan::Spec Fan() {
  Plan::Spec spec = SpecOfTensor(TensorOf("[8]: x=1 on a.0 [-] -> x=2 on b.0-1 [-]"));
  spec.relays = {{.begin = 0, .end = 32, .first_hop = 0, .hop_count = 2}};
  spec.hops = {{.from = 0, .to = 1}, {.from = 0, .to = 2}};
  return spec;
}

TEST(PartProofTest, NamesTheLastClassIfTheLayoutsDoNotGiveIt) {
  Plan::Spec plan = SpecOfTensor(TensorOf("[8]: x=2 on a.0-1 [x] -> x=1 on b.0 [-]"));
  for (ClassIndex c = 0; c < 2; ++c) {
    plan.relays.push_back(
        {.slice_class = c, .root = c, .begin = 0, .end = 16, .first_hop = c, .hop_count = 1});
    plan.hops.push_back({.from = c, .to = 2});
  }
  EXPECT_OK(ProvePart(PartOf(plan, "b"), *plan.slicing));
  for (int32_t c = 0; c < 2; ++c) {
    EXPECT_THAT(ProofAfter(plan, "b",
                           [c](WorkerPart::Spec& spec) {
                             spec.class_sets[c].holders = spec.class_sets[c].receivers;
                           }),
                IsInternalPart("class " + std::to_string(c) +
                               " of the worker's part: expected device sets that hold and need "
                               "something under the tensors' layouts, found others"));
  }
}

TEST(PartProofTest, CopiesAndRelaysMayBeInAnyOrderOfClasses) {
  // a.0 needs elements 0 to 3 and b.0 elements 2 to 7: so a.0 copies classes 0 and 1, and sends
  // classes 1 and 2.
  Plan::Spec plan = SpecOfTensor(TensorOf("[8]: x=1 on a.0 [-] -> x=2 on a.0,b.0 {[0:4]; [2:8]}"));
  plan.relays = {{.slice_class = 2, .begin = 0, .end = 16, .first_hop = 0, .hop_count = 1},
                 {.slice_class = 1, .begin = 0, .end = 8, .first_hop = 1, .hop_count = 1}};
  plan.hops = {{.from = 0, .to = 1}, {.from = 0, .to = 1, .place = 1}};
  plan.copies = {{.slice_class = 1, .device = 0}, {.slice_class = 0, .device = 0}};
  const WorkerPart part = PartOf(plan, "a");
  ASSERT_THAT(part.spec().copies, SizeIs(2));
  EXPECT_OK(ProvePart(part, *plan.slicing));
}

TEST(PartProofTest, ARelayEndsWithItsClass) {
  Plan::Spec plan = SpecOfTensor(TensorOf("[8]: x=1 on a.0 [-] -> x=1 on b.0 [-]", DataType::kU8));
  plan.relays = {{.begin = 0, .end = 8, .first_hop = 0, .hop_count = 1}};
  plan.hops = {{.from = 0, .to = 1}};
  EXPECT_THAT(ProofAfter(plan, "b", [](WorkerPart::Spec& spec) { spec.relays[0].end = 9; }),
              IsInternalPart("relay 0, bytes [0, 9): expected at most the class's 8, found more"));
}

TEST(PartProofTest, OfTwoCutsInsideElementsTheFirstIsNamed) {
  EXPECT_THAT(
      ProofAfter(Fan(), "b",
                 [](WorkerPart::Spec& spec) {
                   spec.relays[0].begin = 2;
                   spec.relays[0].end = 14;
                 }),
      IsInternalPart("relay 0, bytes [2, 14): expected cut between elements, found cut inside "
                     "one, at 2"));
}

TEST(PartProofTest, AChannelIsOfOnePairOfDevices) {
  EXPECT_THAT(
      ProofAfter(Fan(), "b",
                 [](WorkerPart::Spec& spec) {
                   spec.hops[1].channel = 0;
                   spec.hops[1].place = 1;
                 }),
      IsInternalPart(HasSubstr("channel 0 of the worker's part, a.0>b.1: expected place 1 of "
                               "one pair of devices")));
}

TEST(PartProofTest, ChannelsAscendWithTheirPairs) {
  EXPECT_THAT(
      ProofAfter(
          Fan(), "b",
          [](WorkerPart::Spec& spec) { std::swap(spec.hops[0].channel, spec.hops[1].channel); }),
      IsInternalPart(HasSubstr("channel 1 of the worker's part, a.0>b.0: expected place 0")));
}

TEST(PartProofTest, APairOfDevicesHasOneChannel) {
  Plan::Spec plan = SpecOfTensor(TensorOf("[8]: x=1 on a.0 [-] -> x=1 on b.0 [-]"));
  plan.relays = {{.begin = 0, .end = 16, .first_hop = 0, .hop_count = 1},
                 {.begin = 16, .end = 32, .first_hop = 1, .hop_count = 1}};
  plan.hops = {{.from = 0, .to = 1}, {.from = 0, .to = 1, .place = 1}};
  EXPECT_OK(ProvePart(PartOf(plan, "b"), *plan.slicing));
  EXPECT_THAT(
      ProofAfter(plan, "b",
                 [](WorkerPart::Spec& spec) {
                   spec.hops[1].channel = 1;
                   spec.hops[1].place = 0;
                 }),
      IsInternalPart(HasSubstr("channel 1 of the worker's part, a.0>b.0: expected place 0")));
}

TEST(PartProofTest, ATileMayMoveInASharedStorageThatHasAShadowAndInPlaceInAnotherOne) {
  // a.0 keeps the first half of its tile, which is another tile then.
  Plan::Spec plan = SpecOfTensor(TensorOf("[8]: x=1 on a.0 [-] -> x=2 on a.0-1 [x]"));
  plan.relays = {{.slice_class = 1, .begin = 0, .end = 16, .first_hop = 0, .hop_count = 1}};
  plan.hops = {{.from = 0, .to = 1}};
  plan.copies = {{.slice_class = 0, .device = 0}};
  plan.shared_storage = true;
  EXPECT_OK(ProvePart(PartOf(plan, "a"), *plan.slicing));
  plan.binding = BindingMode::kInPlace;
  EXPECT_THAT(
      ProvePart(PartOf(plan, "a"), *plan.slicing),
      StatusIs(absl::StatusCode::kFailedPrecondition, AllOf(HasSubstr("a.0"), HasSubstr("tile"))));
  plan.shared_storage = false;
  EXPECT_OK(ProvePart(PartOf(plan, "a"), *plan.slicing));
}

}  // namespace
}  // namespace crossmesh
