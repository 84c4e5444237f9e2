#include "planner/pipeline/event_times.h"

#include "common/plan/testing/for_each_seed.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

TEST(EventTimesTest, WithoutEventsThereIsNone) {
  EXPECT_EQ(EventTimes(0).next(), EventTimes::kNever);
  EXPECT_EQ(EventTimes(5).next(), EventTimes::kNever);
}

TEST(EventTimesTest, OfThoseAtOneTimeTheFirstPlaceAndThenTheLowestNumberCounts) {
  EventTimes times(3, EventTimes::Ties::kByPlace);
  times.Set(2, 1);
  EXPECT_EQ(times.first(), 2);
  times.Set(1, 1);
  EXPECT_EQ(times.first(), 1);
  times.Set(1, 1, 0.5);
  EXPECT_EQ(times.first(), 2);
  times.Set(2, EventTimes::kNever);
  EXPECT_EQ(times.first(), 1);
  EXPECT_EQ(times.next(), 1);
}

TEST(EventTimesTest, IsWhatLookingAtAllOfThemFinds) {
  ForEachSeed(200, [](RandomSource& random, uint64_t) {
    std::vector<std::pair<double, double>> plain(random.Between(1, 40), {EventTimes::kNever, 0});
    const bool has_places = random.OneIn(2);
    EventTimes times(static_cast<int32_t>(plain.size()),
                     has_places ? EventTimes::Ties::kByPlace : EventTimes::Ties::kByNumber);
    for (int change = 0; change < 100; ++change) {
      const auto source = static_cast<int32_t>(random.Below(std::ssize(plain)));
      plain[source] = {
          random.OneIn(4) ? EventTimes::kNever : static_cast<double>(random.Between(0, 5)),
          static_cast<double>(has_places ? random.Between(0, 2) : 0)};
      times.Set(source, plain[source].first, plain[source].second);
      EXPECT_EQ(times.of(source), plain[source].first);
      const auto first = std::ranges::min_element(plain);
      ASSERT_EQ(times.next(), first->first);
      if (first->first < EventTimes::kNever) ASSERT_EQ(times.first(), first - plain.begin());
    }
  });
}

}  // namespace
}  // namespace crossmesh
