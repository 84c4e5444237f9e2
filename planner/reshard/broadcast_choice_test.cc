#include "planner/reshard/broadcast_choice.h"

#include "common/plan/proof.h"
#include "common/plan/testing/tables.h"
#include "common/testing/status_matchers.h"
#include "planner/reshard/plan_reshard.h"

#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Bytes in two shards on host a, for so many replicas on a host each.
ReshardRequest ToReplicas(int64_t bytes, int replicas) {
  std::string devices;
  for (int i = 0; i < replicas; ++i) absl::StrAppend(&devices, i == 0 ? "" : ",", "b", i, ".0-1");
  return {.tensors = std::make_shared<const TensorTable>(
              TableOf({{.shape = absl::StrCat("[", bytes, "]"),
                        .source_mesh = "x=2 on a.0-1",
                        .source = "[x]",
                        .destination_mesh = absl::StrCat("r=", replicas, ",x=2 on ", devices),
                        .destination = "[x]",
                        .type = DataType::kU8}},
                      {"r"}))};
}

TEST(BroadcastChoiceTest, SmallTensorsAreBroadcast) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(ToReplicas(64 << 10, 3)));
  EXPECT_OK(Prove(plan));
  ASSERT_THAT(plan.figures().broadcasts, SizeIs(2));
  EXPECT_EQ(plan.spec().broadcast_groups.size(), 2);
  EXPECT_THAT(plan.spec().broadcast_groups[0], SizeIs(4));
  for (const BroadcastFigures& group : plan.figures().broadcasts) {
    EXPECT_TRUE(group.is_chosen());
    EXPECT_GT(group.broadcast_seconds, 0);
  }
  EXPECT_THAT(ToText(plan), HasSubstr("broadcast groups 2"));
}

TEST(BroadcastChoiceTest, LongRingsAreNotWorthIt) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(ToReplicas(64 << 10, 40)));
  ASSERT_THAT(plan.figures().broadcasts, SizeIs(2));
  EXPECT_EQ(plan.spec().broadcast_groups.size(), 0);
}

TEST(BroadcastChoiceTest, LargeTensorsAreRelayed) {
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(ToReplicas(int64_t{1} << 30, 3)));
  ASSERT_THAT(plan.figures().broadcasts, SizeIs(2));
  for (const BroadcastFigures& group : plan.figures().broadcasts) {
    EXPECT_FALSE(group.is_chosen());
    // Nothing of either is faster than the ports.
    EXPECT_GE(group.relay_seconds, 0.5 * plan.figures().bound.seconds);
    EXPECT_GE(group.broadcast_seconds, 0.5 * plan.figures().bound.seconds);
  }
  EXPECT_EQ(plan.spec().broadcast_groups.size(), 0);
  EXPECT_THAT(ToText(plan), Not(HasSubstr("broadcast groups")));
  EXPECT_THAT(ToText(plan), HasSubstr("GPUs a.0,b0.0"));
}

TEST(BroadcastChoiceTest, SlowPortsSlowTheRing) {
  ReshardRequest request = ToReplicas(64 << 10, 3);
  ASSERT_OK_AND_ASSIGN(const Plan fast, PlanReshard(request));
  ASSERT_OK_AND_ASSIGN(request.topology,
                       Topology::Create({{.name = "b2",
                                          .nics = {{.name = "n",
                                                    .out_bytes_per_second = 1'000'000,
                                                    .in_bytes_per_second = 1'000'000,
                                                    .out_latency_ns = 1000}}}},
                                        {}));
  ASSERT_OK_AND_ASSIGN(const Plan slow, PlanReshard(request));
  EXPECT_GT(slow.figures().broadcasts[0].broadcast_seconds,
            10 * fast.figures().broadcasts[0].broadcast_seconds);
}

TEST(BroadcastChoiceTest, ARequestMayForbidBroadcasts) {
  ReshardRequest request = ToReplicas(64 << 10, 3);
  request.no_broadcasts = true;
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
  EXPECT_EQ(plan.spec().broadcast_groups.size(), 0);
  EXPECT_THAT(plan.figures().broadcasts, IsEmpty());
}

TEST(BroadcastChoiceTest, StrategiesOfTheLiteratureRelay) {
  ReshardRequest request = ToReplicas(64 << 10, 3);
  request.strategy = Strategy::kBroadcastNaive;
  ASSERT_OK_AND_ASSIGN(const Plan plan, PlanReshard(request));
  EXPECT_THAT(plan.figures().broadcasts, IsEmpty());
}

}  // namespace
}  // namespace crossmesh
