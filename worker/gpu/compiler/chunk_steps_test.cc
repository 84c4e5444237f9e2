#include "worker/gpu/compiler/chunk_steps.h"

#include "common/base/check.h"
#include "common/plan/worker_part.h"
#include "worker/gpu/compiler/testing/small_plans.h"

#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;

// Of the one relay of a plan of 8 leaves and 8 periods, in chunks of at most two leaves.
std::vector<int64_t> StepsWhenDue(DueTime due, int32_t periods = 8) {
  Plan::Spec spec = ThroughTwoHops(8 * Plan::kLeafBytes);
  spec.relays[0].due = due;
  spec.chunk_bytes = 2 * Plan::kLeafBytes;
  spec.periods = periods;
  auto parts = CutParts(Made(std::move(spec)), {{{"a", 0}, {"b", 0}, {"b", 1}}});
  CHECK_OK(parts);
  auto part = PreparedPart::Create(std::make_shared<const WorkerPart>(parts->front()));
  CHECK_OK(part);
  std::vector<int64_t> steps = ChunkSteps(**part, (*part)->nodes()[0]);
  for (const PreparedPart::Node& node : (*part)->nodes()) {
    EXPECT_EQ(ChunkSteps(**part, node), steps) << "at device " << node.device;
  }
  return steps;
}

TEST(ChunkStepsTest, WhatIsDueAllTheTimeHasAChunkInEveryPeriod) {
  EXPECT_THAT(StepsWhenDue({.begin = 0, .end = DueTime::kParts}),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

// Thirds of the execution are no whole parts of it.
TEST(ChunkStepsTest, WhatIsDueAPartOfTheTimeIsInItsPeriods) {
  EXPECT_THAT(StepsWhenDue({.begin = DueTime::kParts / 3, .end = DueTime::kParts / 3 * 2}, 12),
              ElementsAre(4, 5, 6, 7));
}

TEST(ChunkStepsTest, WhatIsDueAtOnceIsSpreadByItsBytes) {
  EXPECT_THAT(StepsWhenDue({}), ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(StepsWhenDue({.begin = DueTime::kParts / 2, .end = DueTime::kParts / 2}),
              ElementsAre(4, 4, 5, 5));
  EXPECT_THAT(StepsWhenDue({.begin = DueTime::kParts, .end = DueTime::kParts}),
              ElementsAre(8, 8, 9, 9));
}

TEST(ChunkStepsTest, ARunWithoutPeriodsIsSpreadByItsBytes) {
  EXPECT_THAT(StepsWhenDue({.begin = 0, .end = DueTime::kParts}, 0), ElementsAre(0, 0, 1, 1));
}

}  // namespace
}  // namespace crossmesh
