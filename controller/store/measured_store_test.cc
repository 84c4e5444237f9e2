#include "controller/store/measured_store.h"

#include "common/base/clock.h"
#include "common/metrics/controller_metrics.h"
#include "common/testing/status_matchers.h"
#include "controller/store/memory_store.h"

#include <string>

#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// Of the series with these labels: its value, or how many observations it has.
double ValueOf(const ControllerMetrics& metrics, absl::string_view family,
               const MetricLabels& labels) {
  for (const MetricFamily* found : metrics.metrics().families()) {
    if (found->name().name != family) continue;
    for (size_t place = 0; place < found->size(); ++place) {
      if (found->labels(place) != labels) continue;
      if (found->kind() != MetricFamily::Kind::kHistogram) return found->value(place);
      double count = 0;
      for (const uint64_t some : found->counts(place)) count += static_cast<double>(some);
      return count;
    }
  }
  ADD_FAILURE() << family;
  return -1;
}

TEST(MeasuredStoreTest, CommitsAndReadsAreCountedByWhatBecameOfThem) {
  const RealClock clock;
  ControllerMetrics metrics;
  MemoryStore memory;
  MeasuredStore store(memory, clock, metrics);
  EXPECT_OK(store.Commit({.epoch = 7, .writes = {{"a", "1"}}}));
  EXPECT_FALSE(store.Commit({.epoch = 6, .writes = {{"a", "2"}}}).ok());
  EXPECT_OK(store.Get("a"));
  EXPECT_FALSE(store.Get("b").ok());
  EXPECT_OK(store.List("", "", 10));
  EXPECT_OK(store.RevisionOf("a"));
  constexpr const char* kTransactions = "crossmesh_store_transactions_total";
  EXPECT_EQ(ValueOf(metrics, kTransactions, {{"op", "write"}, {"result", "success"}}), 1);
  EXPECT_EQ(ValueOf(metrics, kTransactions, {{"op", "write"}, {"result", "aborted"}}), 1);
  EXPECT_EQ(ValueOf(metrics, kTransactions, {{"op", "read"}, {"result", "success"}}), 4);
  EXPECT_EQ(ValueOf(metrics, "crossmesh_store_transaction_seconds", {{"op", "write"}}), 2);
  EXPECT_EQ(ValueOf(metrics, "crossmesh_store_transaction_seconds", {{"op", "read"}}), 4);
}

}  // namespace
}  // namespace crossmesh
