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

// Runs of schedules, to be drawn one below the other on one scale of time, as DrawPicture takes
// them. Cost: ops and messages.
std::string PipelinePicture(const std::vector<DrawnPipeline>& runs,
                            DrawnTime time = DrawnTime::kSeconds);

}  // namespace crossmesh
