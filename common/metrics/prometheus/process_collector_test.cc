#include "common/metrics/prometheus/process_collector.h"

#include "common/testing/sanitizers.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// -1: there is no such metric.
double Collected(const std::string& name) {
  const std::vector<prometheus::MetricFamily> families = ProcessCollector().Collect();
  const auto found = std::ranges::find(families, name, &prometheus::MetricFamily::name);
  return found == families.end() ? -1 : found->metric.front().gauge.value;
}

TEST(ProcessCollectorTest, CountsWhatIsAllocatedUntilItIsFreed) {
  if (kHasAddressSanitizer || kHasThreadSanitizer) GTEST_SKIP() << "its allocator does not say";
  constexpr double kBytes = 64 << 20;
  const double before = Collected("process_allocated_memory_bytes");
  double meanwhile = 0;
  {
    const std::vector<char> block(static_cast<size_t>(kBytes), 'x');
    meanwhile = Collected("process_allocated_memory_bytes");
  }
  EXPECT_GT(before, 0);
  EXPECT_GE(meanwhile - before, 0.9 * kBytes);
  EXPECT_LE(Collected("process_allocated_memory_bytes") - before, 0.1 * kBytes);
}

}  // namespace
}  // namespace crossmesh
