#pragma once

#include "planner/pipeline/op_table.h"
#include "planner/pipeline/timeline.h"

#include <string>
#include <vector>

namespace crossmesh {

// A run to be drawn, with what it stands under. The table and the runs must outlive the call.
struct DrawnPipeline {
  std::string title;
  const OpTable* ops = nullptr;
  const PipelineTimeline* run = nullptr;
  // What was measured of it, of the same table; null: nothing. Each rank then has two rows.
  const PipelineTimeline* measured = nullptr;
};

// The unit of the runs' times.
enum class DrawnTime : uint8_t { kSeconds, kAny };

// Runs of schedules, one below the other on one scale of time, as an SVG picture: a row for each
// rank with a box for each op, and a line for each transfer from the end of the op that makes it to
// its arrival. Under each run stands what a microbatch takes in the middle of it, from the first
// stage's backward ops. What would be too fine to be seen is merged or left out, and the picture
// says so. `runs` has at least one.
std::string DrawPipelines(const std::vector<DrawnPipeline>& runs,
                          DrawnTime time = DrawnTime::kSeconds);

}  // namespace crossmesh
