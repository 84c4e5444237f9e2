#include "planner/reshard/published/due_times.h"

#include "common/plan/testing/tables.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using testing::ElementsAre;

constexpr int32_t kQuarter = DueTime::kParts / 4;

// Devices 0 = a.0, 1 = a.1, 2 = b.0, 3 = b.1, 4 = c.0.
TensorTable FromAToBAndC() {
  return TableOf({{.shape = "[8]",
                   .source_mesh = "x=2 on a.0-1",
                   .source = "[x]",
                   .destination_mesh = "y=3 on b.0-1,c.0",
                   .destination = "[-]"}});
}

TEST(SpreadOverTimeTest, RelaysBetweenTwoHostsFollowEachOtherByTheirBytes) {
  Routes routes;
  routes.BeginRelay({.slice_class = 0, .root = 0, .begin = 0, .end = 16});
  routes.AddHop(0, 2);
  routes.AddHop(2, 4);
  routes.BeginRelay(
      {.slice_class = 1, .root = 1, .begin = 0, .end = 48});  // from the same host to the same
  routes.AddHop(1, 3);
  SpreadOverTime(FromAToBAndC(), routes);
  EXPECT_THAT(routes.relays[0].due, (DueTime{.begin = 0, .end = kQuarter}));
  EXPECT_THAT(routes.relays[1].due, (DueTime{.begin = kQuarter, .end = DueTime::kParts}));
}

TEST(SpreadOverTimeTest, RelaysOfOtherPairsGoOnBesideThem) {
  Routes routes;
  routes.BeginRelay({.slice_class = 0, .root = 0, .begin = 0, .end = 16});
  routes.AddHop(0, 2);
  routes.BeginRelay({.slice_class = 1, .root = 1, .begin = 0, .end = 16});
  routes.AddHop(1, 4);
  routes.BeginRelay({.slice_class = 0, .root = 0, .begin = 16, .end = 16 + 48});
  routes.AddHop(0, 2);
  SpreadOverTime(FromAToBAndC(), routes);
  std::vector<int32_t> begins, ends;
  for (const Relay& relay : routes.relays) {
    begins.push_back(relay.due.begin);
    ends.push_back(relay.due.end);
  }
  EXPECT_THAT(begins, ElementsAre(0, 0, kQuarter));
  EXPECT_THAT(ends, ElementsAre(kQuarter, DueTime::kParts, DueTime::kParts));
}

}  // namespace
}  // namespace crossmesh
