#include "planner/pipeline/schedules/fill_bubbles.h"

#include "common/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

Schedule Filled(absl::string_view text) {
  const absl::StatusOr<Schedule> schedule = ParseSchedule(text);
  EXPECT_OK(schedule);
  const absl::StatusOr<Schedule> filled = FillBubbles(*schedule);
  EXPECT_OK(filled);
  return *filled;
}

TEST(FillBubblesTest, OpsThatCanBeginPassByThoseThatWait) {
  EXPECT_EQ(ToString(Filled("0F0 0F1 0I0 0W0 0I1 0W1 0F2 0I2 0W2\n"
                            "1F0 1I0 1W0 1F1 1I1 1W1 1F2 1I2 1W2\n")),
            "0F0 0F1 0I0 0W0 0I1 0F2 0W1 0I2 0W2\n"
            "1F0 1I0 1F1 1I1 1W0 1W1 1F2 1I2 1W2\n");
}

// One more microbatch at once would be faster.
TEST(FillBubblesTest, AGivenOrderThatIsAsFastStays) {
  const char* const text = "0F0 0I0 0W0 0F1 0I1 0W1\n1F0 1I0 1W0 1F1 1I1 1W1\n";
  EXPECT_EQ(ToString(Filled(text)), text);
}

TEST(FillBubblesTest, OthersDontWaitForGradientsOfTheWeights) {
  EXPECT_EQ(ToString(Filled("0F0 0F1 0I0 0W0 0I1 0W1\n1F0 1I0 1W0 1F1 1I1 1W1\n")),
            "0F0 0F1 0I0 0W0 0I1 0W1\n1F0 1I0 1F1 1I1 1W0 1W1\n");
}

TEST(FillBubblesTest, RefusesWhatCannotRun) {
  absl::StatusOr<Schedule> schedule = ParseSchedule("0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1\n");
  ASSERT_OK(schedule);
  EXPECT_THAT(FillBubbles(*schedule), StatusIs(absl::StatusCode::kInvalidArgument));
  schedule->ranks[0].pop_back();
  EXPECT_THAT(FillBubbles(*schedule), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace crossmesh
