// Routes around links that have failed, held to the plainest search for another way.

#include "planner/reshard/avoid_links.h"

#include "common/plan/proof.h"
#include "common/plan/testing/for_each_seed.h"
#include "common/plan/testing/random_tensors.h"
#include "common/plan/testing/random_topology.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"
#include "planner/reshard/plan_reshard.h"

#include <memory>
#include <set>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

using NamedLinks = std::set<std::pair<std::string, std::string>>;

NamedLinks BothWays(const NamedLinks& links) {
  NamedLinks both = links;
  for (const auto& [a, b] : links) both.emplace(b, a);
  return both;
}

bool IsFailed(const NamedLinks& failed, const TensorTable& tensors, DeviceRank a, DeviceRank b) {
  return failed.contains({tensors.devices()[a].host, tensors.devices()[b].host});
}

ReshardRequest RequestOf(const TensorText& tensor, NamedLinks failed) {
  return {.tensors = std::make_shared<const TensorTable>(TableOf({tensor})),
          .failed_links = BothWays(failed)};
}

int HopsOver(const NamedLinks& failed, const Plan& plan) {
  int over = 0;
  for (const Hop& hop : plan.hops()) over += IsFailed(failed, plan.tensors(), hop.from, hop.to);
  return over;
}

TEST(AvoidLinksTest, AnotherHolderSends) {
  const ReshardRequest request = RequestOf({.shape = "[64]",
                                            .source_mesh = "x=2 on a.0,c.0",
                                            .source = "[-]",
                                            .destination_mesh = "y=1 on b.0",
                                            .destination = "[-]"},
                                           {{"a", "b"}});
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
  EXPECT_OK(Prove(plan));
  for (const Hop& hop : plan.hops()) EXPECT_EQ(plan.tensors().devices()[hop.from].host, "c");
  EXPECT_THAT(plan.figures().search, HasSubstr("around failed links"));
}

TEST(AvoidLinksTest, AnotherReceiverPassesItOn) {
  const ReshardRequest request = RequestOf({.shape = "[64]",
                                            .source_mesh = "x=1 on a.0",
                                            .source = "[-]",
                                            .destination_mesh = "y=2 on b.0,c.0",
                                            .destination = "[-]"},
                                           {{"a", "b"}});
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
  EXPECT_OK(Prove(plan));
  EXPECT_EQ(HopsOver(request.failed_links, plan), 0);
}

TEST(AvoidLinksTest, WhereThereIsNoOtherWayTheLinkIsTried) {
  const ReshardRequest request = RequestOf({.shape = "[64]",
                                            .source_mesh = "x=1 on a.0",
                                            .source = "[-]",
                                            .destination_mesh = "y=1 on b.0",
                                            .destination = "[-]"},
                                           {{"a", "b"}});
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
  EXPECT_OK(Prove(plan));
  EXPECT_EQ(HopsOver(request.failed_links, plan), 1);
  EXPECT_THAT(plan.figures().search, HasSubstr("for want of another way"));
}

// Is every receiver of a relay reached from its holders, by way of each other?
bool HasWay(const NamedLinks& failed, const Plan& plan, const Relay& relay) {
  const auto holders = plan.slicing().holders(relay.slice_class);
  std::set<DeviceRank> reached(holders.begin(), holders.end());
  std::set<DeviceRank> left;
  for (int64_t h = relay.first_hop; h < relay.first_hop + relay.hop_count; ++h) {
    left.insert(plan.hops()[h].to);
  }
  for (bool grown = true; grown && !left.empty();) {
    grown = false;
    for (const DeviceRank to : std::set<DeviceRank>(left)) {
      for (const DeviceRank from : std::set<DeviceRank>(reached)) {
        if (IsFailed(failed, plan.tensors(), from, to)) continue;
        reached.insert(to);
        grown |= left.erase(to) == 1;
        break;
      }
    }
  }
  return left.empty();
}

TEST(AvoidLinksTest, OnRandomRequestsAFailedLinkIsUsedOnlyWhereThereIsNoOtherWay) {
  int avoided = 0, used = 0;
  ForEachSeed(400, [&](RandomSource& random) {
    ReshardRequest request;
    request.tensors = std::make_shared<const TensorTable>(RandomTensorTable(random));
    request.topology = RandomTopology(random, *request.tensors, {.undescribed = true});
    std::set<std::string> hosts;
    for (const DeviceId& device : request.tensors->devices()) hosts.insert(device.host);
    NamedLinks failed;
    for (const std::string& a : hosts) {
      for (const std::string& b : hosts) {
        if (a < b && random.OneIn(3)) failed.emplace(a, b);
      }
    }
    ASSERT_OK_AND_ASSIGN(const Plan before, PlanReshard(request));
    request.failed_links = BothWays(failed);
    ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
    EXPECT_OK(Prove(plan));
    avoided += HopsOver(request.failed_links, before) - HopsOver(request.failed_links, plan);
    for (const Relay& relay : plan.relays()) {
      bool uses = false;
      for (int64_t h = relay.first_hop; h < relay.first_hop + relay.hop_count; ++h) {
        const Hop& hop = plan.hops()[h];
        uses |= IsFailed(request.failed_links, plan.tensors(), hop.from, hop.to);
      }
      used += uses;
      EXPECT_FALSE(uses && HasWay(request.failed_links, plan, relay));
    }
  });
  EXPECT_GT(avoided, 100);
  EXPECT_GT(used, 20);
}

}  // namespace
}  // namespace crossmesh
