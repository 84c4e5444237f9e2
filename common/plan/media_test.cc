#include "common/plan/media.h"

#include "common/base/check.h"
#include "common/plan/proof.h"
#include "common/plan/testing/proven_parts.h"
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

// Ranks: a.0 0, a.1 1, b.0 2, c.0 3. All of the tensor goes from a.0 to b.0, over GPUs, and to a.1
// and c.0, by host memory.
Plan::Spec Replicas() {
  auto tensors = std::make_shared<const TensorTable>(
      TableOf({TensorOf("[8, 4]: x=1 on a.0 [-, -] -> r=3 on a.1,b.0,c.0 [-, -]")}));
  auto slicing = Slicing::Create(*tensors);
  CHECK_OK(slicing);
  Plan::Spec spec{.tensors = std::move(tensors),
                  .slicing = std::make_shared<const Slicing>(*std::move(slicing)),
                  .over_gpus = {2}};
  spec.relays = {
      {.slice_class = 0, .root = 0, .begin = 0, .end = 128, .first_hop = 0, .hop_count = 1},
      {.slice_class = 0, .root = 0, .begin = 0, .end = 128, .first_hop = 1, .hop_count = 2}};
  spec.hops = {{.from = 0, .to = 2}, {.from = 0, .to = 3}, {.from = 3, .to = 1}};
  return spec;
}

// Of a and b, and of c.
std::vector<WorkerPart> HalvedPartsOf(const Plan& plan) {
  return MakeParts(plan, {{{"a", 0}, {"a", 1}, {"b", 0}}, {{"c", 0}}});
}

TEST(MediaTest, APlanAndItsPartsAreProvenAndSayIt) {
  const Plan plan = MakePlan(Replicas());
  EXPECT_OK(Prove(plan));
  EXPECT_THAT(ToText(plan), HasSubstr("received over GPUs by b.0\n"));
  for (const WorkerPart& part : HalvedPartsOf(plan)) {
    EXPECT_THAT(part.spec().over_gpus, ElementsAre(2));
    EXPECT_OK(ProofOf(part));
  }
}

TEST(MediaTest, IdsDifferByIt) {
  Plan::Spec without = Replicas();
  without.over_gpus.clear();
  const Plan plan = MakePlan(Replicas()), other = MakePlan(std::move(without));
  EXPECT_NE(plan.id(), other.id());
  ASSERT_OK_AND_ASSIGN(const WorkerPart half, CutByMedium(HalvedPartsOf(plan)[1], Medium::kHost));
  EXPECT_NE(HalvedPartsOf(plan)[1].digest(), half.digest());
}

TEST(MediaTest, HalvesHaveWhatComesToTheirDevicesAndAreProvenByThemselves) {
  const WorkerPart part = HalvedPartsOf(MakePlan(Replicas()))[0];
  ASSERT_OK_AND_ASSIGN(const WorkerPart over_gpus, CutByMedium(part, Medium::kGpus));
  ASSERT_OK_AND_ASSIGN(const WorkerPart by_host, CutByMedium(part, Medium::kHost));
  EXPECT_OK(ProofOf(over_gpus));
  EXPECT_OK(ProofOf(by_host));
  ASSERT_EQ(over_gpus.spec().relays.size(), 1);
  EXPECT_EQ(over_gpus.spec().relays[0].relay, 0);
  EXPECT_EQ(over_gpus.spec().hops.size(), 1);
  ASSERT_EQ(by_host.spec().relays.size(), 1);
  EXPECT_EQ(by_host.spec().relays[0].relay, 1);
  EXPECT_EQ(by_host.spec().hops.size(), 2);
  for (const DeviceRank device : {0, 1, 2}) {
    EXPECT_EQ(over_gpus.Serves(device), device == 2);
    EXPECT_EQ(by_host.Serves(device), device != 2);
    EXPECT_TRUE(part.Serves(device));
  }
  // As its process gets it.
  ASSERT_OK_AND_ASSIGN(const WorkerPart of_sender, CutPart(over_gpus, {0}));
  EXPECT_OK(ProofOf(of_sender));
  EXPECT_TRUE(of_sender.moves_bytes());
}

TEST(MediaTest, AHalfThatLacksSomethingIsRefused) {
  const WorkerPart part = HalvedPartsOf(MakePlan(Replicas()))[0];
  for (const Medium medium : {Medium::kHost, Medium::kGpus}) {
    ASSERT_OK_AND_ASSIGN(const WorkerPart half, CutByMedium(part, medium));
    WorkerPart::Spec spec = half.spec();
    spec.relays.clear();
    spec.hops.clear();
    ASSERT_OK_AND_ASSIGN(const WorkerPart lacking, WorkerPart::Create(std::move(spec)));
    EXPECT_THAT(ProofOf(lacking), StatusIs(absl::StatusCode::kInternal, HasSubstr("bytes")));
  }
}

TEST(MediaTest, WhatIsToTheOtherHalfsDevicesIsRefused) {
  const WorkerPart part = HalvedPartsOf(MakePlan(Replicas()))[0];
  WorkerPart::Spec spec = part.spec();
  spec.medium = Medium::kGpus;
  ASSERT_OK_AND_ASSIGN(const WorkerPart whole, WorkerPart::Create(std::move(spec)));
  EXPECT_THAT(ProveMedia(whole), StatusIs(absl::StatusCode::kInternal,
                                          HasSubstr("that its medium serves, found c.0")));
}

TEST(MediaTest, ARelayToDevicesOfBothMediaIsRefused) {
  Plan::Spec spec = Replicas();
  spec.relays = {
      {.slice_class = 0, .root = 0, .begin = 0, .end = 128, .first_hop = 0, .hop_count = 3}};
  const Plan plan = MakePlan(std::move(spec));
  const auto is_refused =
      StatusIs(absl::StatusCode::kInternal,
               HasSubstr("relay 0: expected receivers that one medium serves, found b.0 over GPUs "
                         "and c.0 by host memory"));
  EXPECT_THAT(Prove(plan), is_refused);
  EXPECT_THAT(ProofOf(HalvedPartsOf(plan)[0]), is_refused);
}

TEST(MediaTest, M2nAndBroadcastsAreForGpusAlone) {
  Plan::Spec spec = Replicas();
  spec.m2n = true;
  EXPECT_THAT(ProveMedia(MakePlan(std::move(spec))),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("found NCCL M2N")));
  spec = Replicas();
  spec.broadcast_groups.Add(std::vector<DeviceRank>{0, 1, 2});
  EXPECT_THAT(ProveMedia(MakePlan(std::move(spec))),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("found broadcast groups")));
}

TEST(MediaTest, DevicesThatAreNoneAreRefused) {
  for (const std::vector<DeviceRank>& bad :
       {std::vector<DeviceRank>{2, 1}, std::vector<DeviceRank>{4}, std::vector<DeviceRank>{-1}}) {
    Plan::Spec spec = Replicas();
    spec.over_gpus = bad;
    EXPECT_THAT(Plan::Create(std::move(spec)).status(),
                StatusIs(absl::StatusCode::kInternal, HasSubstr("receivers over GPUs")));
    WorkerPart::Spec part = HalvedPartsOf(MakePlan(Replicas()))[0].spec();
    part.over_gpus = bad;
    EXPECT_THAT(WorkerPart::Create(std::move(part)).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("receivers over GPUs")));
  }
  WorkerPart::Spec part = HalvedPartsOf(MakePlan(Replicas()))[0].spec();
  part.over_gpus.clear();
  part.medium = Medium::kHost;
  EXPECT_THAT(WorkerPart::Create(std::move(part)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("medium")));
}

}  // namespace
}  // namespace crossmesh
