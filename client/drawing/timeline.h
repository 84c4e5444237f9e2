#pragma once

#include "client/drawing/drawn_plan.h"

#include <cstdint>
#include <vector>

namespace crossmesh {

// A chunk that passes a port, or several of one colour without a gap that could be seen. They pass
// the port into a host later by the latencies.
struct TimelineBar {
  double begin = 0;  // seconds
  double end = 0;
  int32_t lane = 0;
  int32_t colour = 0;  // index into DrawnPlan::legend()
};

// One port. Chunks of one colour to or from the same NIC share a lane; those of the last lane may
// be of others, and overlap.
struct TimelineRow {
  static constexpr int32_t kLanesMax = 6;

  int32_t port = 0;
  std::vector<double> lanes;      // part of the port's rate that passes while something does
  std::vector<TimelineBar> bars;  // by lane, then by begin
};

// Chunks of the critical chain that follow one another from one NIC to another.
struct CriticalSpan {
  static constexpr int32_t kNoRow = -1;  // of a port without one

  int32_t out_row = kNoRow;
  int32_t out_lane = 0;
  int32_t in_row = kNoRow;
  int32_t in_lane = 0;
  double begin = 0;  // seconds
  double end = 0;
  double latency = 0;  // later than that in its in port's row
};

struct Timeline {
  static constexpr size_t kRowsMax = 28;
  static constexpr size_t kBarsMax = 3000;

  std::vector<TimelineRow> rows;       // hosts as drawn, in before out; then racks
  std::vector<CriticalSpan> critical;  // in the order of time
  size_t ports_left_out = 0;           // the least busy ones of those that carried something
};

// The run as bars, on paper on which `pixel_seconds` pass in a pixel: chunks too short to be told
// apart share a bar, a longer one the more bars there would be. Cost: transfers, times the
// logarithm of what they exceed kBarsMax by.
Timeline MakeTimeline(const DrawnPlan& drawn, double pixel_seconds);

}  // namespace crossmesh
