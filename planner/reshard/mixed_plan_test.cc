// Plans that join GPUs and host memory.

#include "planner/reshard/mixed_plan.h"

#include "common/base/check.h"
#include "common/mesh/gpu_host.h"
#include "common/plan/proof.h"
#include "common/plan/testing/for_each_seed.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Of each host some of the devices are GPUs, with random ports.
Topology RandomMixedHosts(RandomSource& random, const TensorTable& tensors) {
  const auto rate = [&random](int64_t most) { return 100'000 * random.Between(1, most); };
  std::vector<Host> hosts;
  for (const std::string& name : tensors.hosts()) {
    Host& host = hosts.emplace_back(
        Host{.name = name, .nics = {{"n", rate(8), rate(8), random.Below(3), random.Below(3)}}});
    for (int32_t d = 0; d < 64; ++d) {
      if (random.OneIn(2)) host.gpus.push_back({d, "n", rate(40), rate(40), rate(100)});
    }
  }
  return *Topology::Create(std::move(hosts), {});
}

bool IsDescribedGpu(const ReshardRequest& request, DeviceRank device) {
  return request.topology.FindGpu(request.tensors->devices()[device]) != nullptr;
}

// What the plainest reading of the words says.
void ExpectServedByTheRightMedium(const ReshardRequest& request, const Plan& plan) {
  const std::vector<DeviceRank>& over_gpus = plan.spec().over_gpus;
  for (DeviceRank device = 0; device < std::ssize(request.tensors->devices()); ++device) {
    bool is_served = false, lacks = false;
    for (ClassIndex c = 0; c < std::ssize(plan.slicing().classes()); ++c) {
      if (!std::ranges::binary_search(plan.slicing().receivers(c), device)) continue;
      is_served = true;
      lacks |= std::ranges::none_of(plan.slicing().holders(c),
                                    [&](DeviceRank d) { return IsDescribedGpu(request, d); });
    }
    EXPECT_EQ(std::ranges::binary_search(over_gpus, device),
              IsDescribedGpu(request, device) && is_served && !lacks);
  }
  for (const Hop& hop : plan.hops()) {
    if (!std::ranges::binary_search(over_gpus, hop.to)) continue;
    EXPECT_TRUE(IsDescribedGpu(request, hop.from)) << "NCCL reads host memory";
  }
}

TEST(MixedPlanPropertyTest, PlansAreProvenAndUseGpusWhereTheyCan) {
  int mixed = 0;
  ForEachSeed(200, [&](RandomSource& random, uint64_t seed) {
    ReshardRequest request;
    request.tensors = std::make_shared<const TensorTable>(RandomTensorTable(random));
    request.topology = RandomMixedHosts(random, *request.tensors);
    request.seed = seed;
    if (random.OneIn(4)) request.chunk_bytes = Plan::kLeafBytes;
    if (random.OneIn(4)) request.nic_share = 0.5;
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
    EXPECT_OK(Prove(plan));
    if (plan.spec().over_gpus.empty()) return;
    ++mixed;
    ExpectServedByTheRightMedium(request, plan);
    const PlanFigures& figures = plan.figures();
    EXPECT_EQ(figures.strategy, "relay");
    EXPECT_GE(figures.excess.routing_seconds, 0);
    EXPECT_GE(figures.excess.fill_seconds, 0);
    EXPECT_GE(figures.predicted_seconds, figures.bound.seconds);
    EXPECT_EQ(plan.spec().least_run_ns > 0, request.nic_share < 1 && figures.bound.seconds >= 1e-9);
    ASSERT_OK_AND_ASSIGN(const Plan again, PlanReshard(request));
    EXPECT_EQ(plan.id(), again.id());
  });
  EXPECT_GE(mixed, 50);
}

ReshardRequest RequestToReplicas(const std::string& tensor) {
  ReshardRequest request;
  request.tensors =
      std::make_shared<const TensorTable>(TableOf({TensorOf(tensor, DataType::kBF16)}));
  std::vector<Host> hosts = {*GpuHost("h100x8", "a"), *GpuHost("h100x8", "b")};
  hosts.push_back({.name = "c", .nics = {{"n", 12'500'000'000, 12'500'000'000, 0, 0}}});
  request.topology = *Topology::Create(std::move(hosts), {});
  return request;
}

TEST(MixedPlanTest, OneReplicaInHostMemoryLeavesTheOthersOnGpus) {
  const ReshardRequest request =
      RequestToReplicas("[8192, 8192]: x=8 on a.0-7 [x, -] -> r=2,y=8 on b.0-7,c.0-7 [-, y]");
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
  EXPECT_OK(Prove(plan));
  EXPECT_THAT(plan.spec().over_gpus, ElementsAre(8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_THAT(plan.figures().search, HasSubstr("over GPUs 64 groups"));
  // Both halves go at once, so one after the other is the most that is predicted.
  EXPECT_LT(plan.figures().predicted_seconds, 1.5 * plan.figures().bound.seconds);
}

TEST(MixedPlanTest, WhatOnlyHostMemoryHoldsComesByHostMemory) {
  const ReshardRequest request = RequestToReplicas(
      "[64, 64]: x=2 on a.0,c.0 [x, -] -> y=2 on b.0-1 {[0:32, 0:64]; [0:64, 0:64]}");
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
  EXPECT_OK(Prove(plan));
  // b.0 needs what a.0 holds, b.1 what c.0 holds as well.
  EXPECT_THAT(plan.spec().over_gpus, ElementsAre(1));
}

TEST(MixedPlanTest, WithoutGpusOrWithOthersStrategyThereIsOneHalf) {
  ReshardRequest request =
      RequestToReplicas("[64, 64]: x=2 on a.0-1 [x, -] -> r=2 on b.0,c.0 [-, -]");
  request.strategy = Strategy::kSendRecv;
  EXPECT_THAT(PlanReshard(request)->spec().over_gpus, IsEmpty());
  request = RequestToReplicas("[64, 64]: x=2 on c.0-1 [x, -] -> r=1 on d.0 [-, -]");
  EXPECT_THAT(PlanReshard(request)->spec().over_gpus, IsEmpty());
  request = RequestToReplicas("[64, 64]: x=2 on a.0-1 [x, -] -> r=1 on b.0 [-, -]");
  EXPECT_THAT(PlanReshard(request)->spec().over_gpus, IsEmpty());
}

}  // namespace
}  // namespace crossmesh
