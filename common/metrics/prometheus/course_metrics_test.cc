#include "common/metrics/prometheus/metric_collector.h"
#include "common/metrics/worker_metrics.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

namespace crossmesh {
namespace {

using testing::HasSubstr;

std::string TextOf(const WorkerMetrics& metrics) {
  return prometheus::TextSerializer().Serialize(MetricCollector(metrics.metrics()).Collect());
}

TEST(CourseMetrics, StepsAndReducedBytesAddUpAndArraysAreThoseOfNow) {
  WorkerMetrics metrics;
  metrics.SetCourses(8, 900, 60);
  metrics.SetCourses(2, 100, 6);
  const std::string text = TextOf(metrics);
  EXPECT_THAT(text, HasSubstr("crossmesh_worker_course_steps_total 10\n"));
  EXPECT_THAT(text, HasSubstr("crossmesh_worker_reduced_bytes_total 1000\n"));
  EXPECT_THAT(text, HasSubstr("crossmesh_worker_tensor_bytes{state=\"array\"} 6\n"));
}

}  // namespace
}  // namespace crossmesh
