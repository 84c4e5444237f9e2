#include "common/metrics/metric_family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr MetricName kName = {"things_total", "Things."};
constexpr absl::string_view kColors[] = {"red", "green"};
constexpr absl::string_view kSizes[] = {"small", "large"};
constexpr double kBounds[] = {1, 10};

TEST(MetricFamilyTest, EveryCombinationOfLabelsIsThereFromTheStart) {
  MetricSet metrics;
  Counters counters(metrics, kName, OneOf("color", kColors), OneOf("size", kSizes));
  EXPECT_THAT(metrics.families(), ElementsAre(&counters));
  ASSERT_EQ(counters.size(), 4U);
  counters.Increment(1, 0);
  counters.Add(2.5, 1);
  EXPECT_THAT(counters.labels(2), ElementsAre(Pair("color", "green"), Pair("size", "small")));
  EXPECT_EQ(counters.value(2), 3.5);
  EXPECT_EQ(counters.value(3), 0);
}

TEST(MetricFamilyTest, AGaugeIsWhatItWasSetToLast) {
  MetricSet metrics;
  Gauges gauges(metrics, kName);
  gauges.Set(7);
  gauges.Set(3);
  gauges.Add(-1);
  EXPECT_EQ(gauges.value(0), 2);
}

TEST(MetricFamilyTest, ABoundBelongsToTheBucketThatItEnds) {
  MetricSet metrics;
  Histograms histograms(metrics, kName, kBounds, OneOf("color", kColors));
  for (const double value : {0.5, 1.0, 1.5, 10.0, 11.0}) histograms.Observe(value, 1);
  histograms.Observe(absl::Milliseconds(500));
  EXPECT_THAT(histograms.counts(0), ElementsAre(1, 0, 0));
  EXPECT_THAT(histograms.counts(1), ElementsAre(2, 2, 1));
  EXPECT_EQ(histograms.value(1), 24);
}

}  // namespace
}  // namespace crossmesh
