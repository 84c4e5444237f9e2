#include "common/plan/testing/chain_plan.h"
#include "common/plan/testing/tables.h"
#include "common/plan/worker_part.h"
#include "common/testing/status_matchers.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// A tensor in two shards, each with two replicas elsewhere, in broadcast groups. Ranks: a.0 0, a.1
// 1, b.0 2, b.1 3, c.0 4, c.1 5.
Plan ShardsInGroups() {
  Plan::Spec rest;
  rest.broadcast_groups.Add(std::vector<DeviceRank>{0, 2, 4});
  rest.broadcast_groups.Add(std::vector<DeviceRank>{1, 3, 5});
  return ChainPlan(TensorOf("[8, 4]: x=2 on a.0-1 [x, -] -> r=2,x=2 on b.0-1,c.0-1 [x, -]"),
                   {"a.0 > b.0 > c.0", "a.1 > b.1 > c.1"}, rest);
}

TEST(CutPartsTest, EachWorkerOfABroadcastGroupHasItOnce) {
  // Of the first group the first worker has the devices on both sides of the second one's.
  ASSERT_OK_AND_ASSIGN(
      const std::vector<WorkerPart> parts,
      CutParts(ShardsInGroups(),
               {{{"a", 0}, {"c", 0}}, {{"b", 0}}, {{"a", 1}, {"b", 1}, {"c", 1}}}));
  ASSERT_THAT(parts, SizeIs(3));
  for (const WorkerPart& part : parts) EXPECT_THAT(part.spec().broadcast_groups, SizeIs(1));
  EXPECT_THAT(parts[0].BroadcastGroupOf(4), ElementsAre(0, 2, 4));
  EXPECT_THAT(parts[1].BroadcastGroupOf(2), ElementsAre(0, 2, 4));
  EXPECT_THAT(parts[2].BroadcastGroupOf(5), ElementsAre(1, 3, 5));
}

TEST(CutPartsTest, APartHasNoRoomForMoreRelaysAndHopsThanItsOwn) {
  const Plan plan = ChainPlan(TensorOf("[12]: x=3 on a.0-2 [x] -> x=2 on b.0-1 [-]"),
                              {"a.0 > b.0 > b.1", "a.1 > b.1 > b.0", "a.2 > b.0 > b.1"});
  ASSERT_OK_AND_ASSIGN(const std::vector<WorkerPart> parts,
                       CutParts(plan, {{{"a", 0}, {"a", 1}, {"a", 2}}, {{"b", 0}, {"b", 1}}}));
  const WorkerPart::Spec& a = parts[0].spec();
  const WorkerPart::Spec& b = parts[1].spec();
  ASSERT_THAT(a.relays, SizeIs(3));
  ASSERT_THAT(a.hops, SizeIs(3));
  ASSERT_THAT(b.relays, SizeIs(3));
  ASSERT_THAT(b.hops, SizeIs(6));
  EXPECT_EQ(a.relays.capacity(), 3u);
  EXPECT_EQ(a.hops.capacity(), 3u);
  EXPECT_EQ(b.relays.capacity(), 3u);
  EXPECT_EQ(b.hops.capacity(), 6u);
}

}  // namespace
}  // namespace crossmesh
