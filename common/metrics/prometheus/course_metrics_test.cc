#include "common/metrics/label_set.h"
#include "common/metrics/prometheus/metric_collector.h"
#include "common/metrics/worker_metrics.h"

#include <string>

#include <absl/strings/string_view.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

std::string TextOf(const WorkerMetrics& metrics) {
  return prometheus::TextSerializer().Serialize(MetricCollector(metrics.metrics()).Collect());
}

TEST(CourseMetrics, StepsAddUpByKindAndArraysAreThoseOfNowAndAtTheMost) {
  WorkerMetrics metrics;
  const auto place = [](absl::string_view kind) { return *FindLabel(kStepKindLabels, kind); };
  metrics.CourseSteps(place("all_gather"), 8);
  metrics.CourseSteps(place("all_gather"), 2);
  metrics.CourseSteps(place("relay"), 1);
  metrics.Reduced(900);
  metrics.Reduced(100);
  metrics.SetArrayBytes(60, 60);
  metrics.SetArrayBytes(6, 60);
  metrics.SetStagingPeak(40, 50);
  const std::string text = TextOf(metrics);
  EXPECT_THAT(text, HasSubstr("crossmesh_worker_course_steps_total{kind=\"all_gather\"} 10\n"));
  EXPECT_THAT(text, HasSubstr("crossmesh_worker_course_steps_total{kind=\"relay\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("crossmesh_worker_course_steps_total{kind=\"permute\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("crossmesh_worker_reduced_bytes_total 1000\n"));
  EXPECT_THAT(text, HasSubstr("crossmesh_worker_tensor_bytes{state=\"array\"} 6\n"));
  EXPECT_THAT(text, HasSubstr("crossmesh_worker_array_peak_bytes 60\n"));
  EXPECT_THAT(text, HasSubstr("crossmesh_worker_staging_peak_bytes{direction=\"send\"} 40\n"));
  EXPECT_THAT(text, HasSubstr("crossmesh_worker_staging_peak_bytes{direction=\"recv\"} 50\n"));
}

}  // namespace
}  // namespace crossmesh
