// Plans between GPUs: laws on random requests, and how near plans of real sizes come to the ports.

#include "common/base/check.h"
#include "common/mesh/gpu_host.h"
#include "common/plan/proof.h"
#include "common/plan/testing/for_each_seed.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"
#include "planner/reshard/plan_reshard.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;

// All of these hosts, with GPUs of random ports; some share a NIC. A run takes some tens of steps.
Topology RandomGpuHosts(RandomSource& random, const TensorTable& tensors, bool racks) {
  const auto rate = [&random](int64_t most) { return 100'000 * random.Between(1, most); };
  std::vector<Host> hosts;
  for (const std::string& name : tensors.hosts()) {
    Host& host = hosts.emplace_back(Host{.name = name, .nics = {}});
    const int64_t nics = random.Between(1, 4);
    for (int64_t n = 0; n < nics; ++n) {
      host.nics.push_back(
          {absl::StrCat("n", n), rate(8), rate(8), random.Below(3), random.Below(3)});
    }
    for (int32_t d = 0; d < 64; ++d) {
      host.gpus.push_back(
          {d, absl::StrCat("n", random.Below(nics)), rate(40), rate(40), rate(100)});
    }
  }
  std::vector<Rack> in_racks;
  if (racks) in_racks.push_back({"r", {tensors.hosts()[0]}, 300'000, 500'000});
  return *Topology::Create(std::move(hosts), std::move(in_racks));
}

TEST(GpuPlanPropertyTest, EveryStrategyGivesAPlanThatIsProvenAndNotBelowTheBound) {
  ForEachSeed(150, [&](RandomSource& random, uint64_t seed) {
    ReshardRequest request;
    request.tensors = std::make_shared<const TensorTable>(RandomTensorTable(random));
    request.topology = RandomGpuHosts(random, *request.tensors, seed % 3 == 0);
    request.seed = seed;
    for (const Strategy strategy : kAllStrategies) {
      SCOPED_TRACE(StrategyName(strategy));
      request.strategy = strategy;
      ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
      EXPECT_OK(Prove(plan));
      const PlanFigures& figures = plan.figures();
      EXPECT_GE(figures.excess.routing_seconds, 0);
      EXPECT_GE(figures.excess.fill_seconds, 0);
      EXPECT_NEAR(
          figures.predicted_seconds,
          figures.bound.seconds + figures.excess.routing_seconds + figures.excess.fill_seconds,
          1e-9 * figures.predicted_seconds);
      EXPECT_GE(figures.network_bytes, figures.least_network_bytes);
      if (strategy == Strategy::kRelay) {
        EXPECT_EQ(figures.network_bytes, figures.least_network_bytes)
            << "a byte enters a host once";
      }
      ASSERT_OK_AND_ASSIGN(const Plan again, PlanReshard(request));
      EXPECT_EQ(plan.id(), again.id());
    }
  });
}

struct RealCase {
  std::string name;
  std::string tensor;    // one of BF16 stands for all
  double share_min = 0;  // of the bound, that the prediction is to come to
  int64_t message_min = 0;
};

ReshardRequest RequestOf(const std::string& tensor) {
  ReshardRequest request;
  request.tensors =
      std::make_shared<const TensorTable>(TableOf({TensorOf(tensor, DataType::kBF16)}));
  std::vector<Host> hosts;
  for (const std::string& name : request.tensors->hosts()) {
    hosts.push_back(*GpuHost("h100x8", name));
  }
  request.topology = *Topology::Create(std::move(hosts), {});
  return request;
}

Plan PlanOf(const std::string& tensor, int64_t chunk_bytes = 0) {
  ReshardRequest request = RequestOf(tensor);
  request.chunk_bytes = chunk_bytes;
  absl::StatusOr<Plan> plan = PlanReshard(request);
  CHECK_OK(plan);
  CHECK_OK(Prove(*plan));
  return *std::move(plan);
}

// 15 GB, from a trainer that cuts by rows to replicas that cut by columns.
TEST(GpuPlanTest, PlansOfRealSizesAreNearWhatThePortsCanDo) {
  const std::vector<RealCase> cases = {
      {"one GPU to another host", "[86016, 86016]: x=1 on a.0 [-, -] -> y=1 on b.0 [-, -]", 0.9,
       8 * kMiB},
      {"32 GPUs to 32",
       "[86016, 86016]: x=32 on a.0-7,b.0-7,c.0-7,d.0-7 [x, -] -> "
       "r=4,y=8 on e.0-7,f.0-7,g.0-7,h.0-7 [-, y]",
       0.9, kMiB / 2},
      {"16 GPUs to 4 replicas",
       "[86016, 86016]: x=16 on a.0-7,b.0-7 [x, -] -> "
       "r=4,y=8 on e.0-7,f.0-7,g.0-7,h.0-7 [-, y]",
       0.9, kMiB},
      {"one GPU to 4 replicas",
       "[86016, 86016]: x=1 on a.0 [-, -] -> "
       "r=4 on b.0,c.0,d.0,e.0 [-, -]",
       0.9, 8 * kMiB},
      {"NVLink, all to all", "[86016, 86016]: x=8 on a.0-7 [x, -] -> y=8 on a.0-7 [-, y]", 0.85,
       kMiB},
      {"NVLink, 4 to 4", "[86016, 86016]: x=4 on a.0-3 [x, -] -> y=4 on a.4-7 [-, y]", 0.85, kMiB},
  };
  for (const RealCase& c : cases) {
    SCOPED_TRACE(c.name);
    const Plan plan = PlanOf(c.tensor);
    const PlanFigures& figures = plan.figures();
    EXPECT_GE(figures.bound.seconds, c.share_min * figures.predicted_seconds)
        << "chunk " << plan.chunk_bytes() << ", periods " << plan.periods() << "; "
        << figures.search;
    EXPECT_GE(plan.chunk_bytes(), c.message_min);
    RecordProperty(c.name, absl::StrCat(figures.bound.seconds / figures.predicted_seconds));
  }
}

TEST(GpuPlanTest, WhatMovesInsideAHostTakesTime) {
  EXPECT_GT(PlanOf("[1000]: x=1 on a.0 [-] -> y=1 on a.1 [-]").figures().predicted_seconds, 0);
  EXPECT_GT(PlanOf("[1000]: x=1 on a.0 [-] -> y=1 on a.0 [-]").figures().predicted_seconds, 0);
}

TEST(GpuPlanTest, ThePlanSaysWhatM2nWouldTakeOrWhyItCannot) {
  // The slower port is the NIC, and both have it: a plan beats what packs, sends and unpacks in
  // turn.
  const PlanFigures figures =
      PlanOf("[65536, 8192]: x=2 on a.0-1 [x, -] -> y=2 on b.0-1 [-, y]").figures();
  ASSERT_TRUE(figures.m2n.has_value());
  EXPECT_EQ(figures.m2n->refusal, "");
  EXPECT_GT(figures.m2n->seconds, figures.predicted_seconds);
  EXPECT_LT(figures.m2n->seconds, 1.2 * figures.predicted_seconds);
  EXPECT_THAT(PlanOf("[8, 8]: x=2,y=2 on a.0-3 [x, y] -> z=1 on b.0 [-, -]").figures().m2n->refusal,
              HasSubstr("by NCCL M2N: source: expected a cut of one dimension"));
}

TEST(GpuPlanTest, M2nIsAStrategyWhosePlanIsProvenAndPredictedAsItIsForComparison) {
  constexpr char kTensor[] = "[65536, 8192]: x=2 on a.0-1 [x, -] -> y=2,r=2 on b.0-3 [-, y]";
  ReshardRequest request = RequestOf(kTensor);
  request.strategy = Strategy::kM2n;
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
  EXPECT_OK(Prove(plan));
  EXPECT_TRUE(plan.spec().m2n);
  EXPECT_EQ(plan.figures().strategy, "m2n");
  const Plan relays = PlanOf(kTensor);
  EXPECT_FALSE(relays.spec().m2n);
  EXPECT_EQ(plan.figures().predicted_seconds, relays.figures().m2n->seconds);
  EXPECT_GE(plan.figures().predicted_seconds, plan.figures().bound.seconds);
}

// A few rows: relays take a step to send and one to receive, M2N one group of calls.
constexpr char kFewBytes[] = "[64, 64]: x=2 on a.0-1 [x, -] -> y=2 on b.0-1 [-, y]";

TEST(GpuPlanTest, M2nGoesInsteadOfRelaysWhereItMayAndIsPredictedToBeFaster) {
  ReshardRequest request = RequestOf(kFewBytes);
  ASSERT_OK_AND_ASSIGN(const Plan relays, PlanReshard(request));
  EXPECT_EQ(relays.figures().m2n->not_chosen, "strategy relay is asked for");
  ASSERT_LT(relays.figures().m2n->seconds, relays.figures().predicted_seconds);
  request.no_m2n.clear();
  ASSERT_OK_AND_ASSIGN(const Plan chosen, PlanReshard(request));
  EXPECT_OK(Prove(chosen));
  EXPECT_TRUE(chosen.spec().m2n);
  EXPECT_EQ(chosen.figures().strategy, "m2n");
  EXPECT_EQ(chosen.figures().m2n->not_chosen, "");
  EXPECT_EQ(chosen.figures().predicted_seconds, relays.figures().m2n->seconds);
  // The same plan as where it is named.
  request.strategy = Strategy::kM2n;
  ASSERT_OK_AND_ASSIGN(const Plan named, PlanReshard(request));
  EXPECT_EQ(chosen.id(), named.id());
}

TEST(GpuPlanTest, RelaysGoWhereM2nIsSlowerOrCannot) {
  const auto figures_of = [](const std::string& tensor, double nic_share) {
    ReshardRequest request = RequestOf(tensor);
    request.no_m2n.clear();
    request.nic_share = nic_share;
    return PlanReshard(request)->figures();
  };
  const PlanFigures slower =
      figures_of("[65536, 8192]: x=2 on a.0-1 [x, -] -> y=2 on b.0-1 [-, y]", 1);
  EXPECT_EQ(slower.strategy, "relay");
  EXPECT_EQ(slower.m2n->not_chosen, "relays are predicted to take no more");
  EXPECT_EQ(figures_of(kFewBytes, 0.5).m2n->not_chosen, "it keeps to no nic_share");
  const PlanFigures refused = figures_of("[8, 8]: x=2,y=2 on a.0-3 [x, y] -> z=1 on b.0 [-, -]", 1);
  EXPECT_EQ(refused.strategy, "relay");
  EXPECT_EQ(refused.m2n->not_chosen, "");
}

TEST(GpuPlanTest, M2nIsRefusedWithWhatItCannotMove) {
  const auto refusal_of = [](ReshardRequest request) {
    request.strategy = Strategy::kM2n;
    return PlanReshard(request).status();
  };
  EXPECT_THAT(
      refusal_of(RequestOf("[8, 8]: x=2,y=2 on a.0-3 [x, y] -> z=1 on b.0 [-, -]")),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("strategy m2n: tensor group 0 of shape [8, 8] by NCCL M2N: source: "
                         "expected a cut of")));
  ReshardRequest request = RequestOf("[8]: x=1 on a.0 [-] -> z=1 on b.0 [-]");
  request.nic_share = 0.5;
  EXPECT_THAT(refusal_of(request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected a nic_share of 1")));
  request.nic_share = 1;
  request.topology = Topology();
  EXPECT_THAT(refusal_of(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("expected GPUs alone, as the network's "
                                                      "description has them, found a.0")));
}

TEST(GpuPlanTest, AChunkThatAUserWantsIsKept) {
  EXPECT_EQ(PlanOf("[1000000]: x=1 on a.0 [-] -> y=1 on b.0 [-]", kMiB).chunk_bytes(), kMiB);
}

TEST(GpuPlanTest, TheSearchSaysWhatStepsThereAre) {
  EXPECT_THAT(PlanOf("[1000000]: x=1 on a.0 [-] -> y=1 on b.0 [-]").figures().search,
              HasSubstr("1 groups, 1 pieces, side by side; 1 steps, 1 messages of 2000000 bytes"));
}

}  // namespace
}  // namespace crossmesh
