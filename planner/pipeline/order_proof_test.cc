#include "planner/pipeline/order_proof.h"

#include "common/plan/testing/for_each_seed.h"
#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "planner/pipeline/testing/pipeline_vectors.h"
#include "planner/pipeline/testing/random_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

absl::Status Order(absl::string_view text, int32_t stages) {
  const PipelineProfile profile = UniformProfile(stages, 1, 0);
  absl::StatusOr<Schedule> schedule = ParseSchedule(text);
  if (!schedule.ok()) return schedule.status();
  absl::StatusOr<OpTable> ops = OpTable::Create(*schedule, profile);
  return ops.ok() ? ProveOrder(*ops) : ops.status();
}

TEST(OrderProofTest, ACircleOfRanksIsPrinted) {
  EXPECT_OK(Order("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n", 2));
  EXPECT_THAT(Order("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1\n", 2),
              IsRefused("rank 0: 0B0 waits for 1B0, behind 1F1 on rank 1; rank 1: 1F1 "
                        "waits for 0F1, behind 0B0 on rank 0"));
}

TEST(OrderProofTest, ARankMayWaitForItself) {
  EXPECT_THAT(Order("0F0 0W0 0I0\n", 1),
              IsRefused("rank 0: 0W0 waits for 0I0, behind 0W0 on rank 0"));
}

// A rank that waits for a circle is no part of it.
TEST(OrderProofTest, OnlyTheCircleIsPrinted) {
  const absl::Status status = Order("0F0 0B0\n1F0 1B0\n2B0 2F0\n", 3);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               testing::EndsWith("found rank 2: 2B0 waits for 2F0, behind 2B0 on "
                                                 "rank 2")));
}

// They wait for what either waits for: in turn they would have an order.
TEST(OrderProofTest, FusedOpsWaitForEachOther) {
  EXPECT_OK(Order("0F0 0F1 0B0 0B1\n1F0 1F1 1B0 1B1\n", 2));
  EXPECT_OK(Order("0F0 0F1 0B0 0B1\n1F0 1F1& 1B0 1B1\n", 2));
  EXPECT_OK(Order("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n", 2));
  EXPECT_THAT(Order("0F0 0F1& 0B0 0B1\n1F0 1F1& 1B0 1B1\n", 2),
              IsRefused("rank 0: 0F1& 0B0 waits for 1F1& 1B0; rank 1: 1F1& 1B0 waits for 0F1& "
                        "0B0"));
  EXPECT_THAT(Order("0F0& 0B0\n", 1), IsRefused("rank 0: 0F0& 0B0 waits for 0F0& 0B0"));
}

TEST(OrderProofTest, SchedulesThatRanHaveAnOrder) {
  ForEachSeed(200, [&](RandomSource& random) {
    const PipelineProfile profile = RandomProfile(random);
    const Schedule schedule =
        RandomSchedule(random, profile, 3, BackwardForm::kSplit, random.OneIn(2));
    ASSERT_OK_AND_ASSIGN(const OpTable ops, OpTable::Create(schedule, profile));
    EXPECT_OK(ProveOrder(ops));
  });
}

}  // namespace
}  // namespace crossmesh
