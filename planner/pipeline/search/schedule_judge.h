#pragma once

#include "common/base/byte_count.h"
#include "planner/pipeline/op_table.h"
#include "planner/pipeline/timeline.h"

#include <cstdint>
#include <functional>

#include <absl/status/statusor.h>

namespace crossmesh {

// What a search minimises.
enum class SearchObjective : uint8_t {
  kSeconds,  // from the first begin to the last end
  kSpan,     // the longest from begin to end on one rank: where iterations overlap
};

inline double ObjectiveOf(const PipelineTimeline& run, SearchObjective objective) {
  return objective == SearchObjective::kSeconds ? run.seconds : run.span_seconds;
}

// By how much a time is longer than its bound: 0.01 is 1 %.
inline double GapOf(double seconds, double bound) { return bound > 0 ? seconds / bound - 1 : 0; }

// A schedule as it would run, and what it holds.
struct JudgedRun {
  PipelineTimeline run;
  ByteCount peak_bytes;  // on the fullest rank
};

// Runs a schedule as it would be carried out. ResourceExhausted where it does not fit the memory of
// the ranks; InvalidArgument where it cannot run.
using ScheduleJudge = std::function<absl::StatusOr<JudgedRun>(const OpTable& ops)>;

// Of schedules whose messages never wait for memory: what the profile sets aside is enough.
ScheduleJudge JudgeByProfile(TransferModel model);

}  // namespace crossmesh
