#pragma once

#include "common/base/byte_count.h"
#include "common/base/cancel_check.h"
#include "planner/pipeline/bound.h"
#include "planner/pipeline/profile.h"
#include "planner/pipeline/schedule.h"
#include "planner/pipeline/search/schedule_judge.h"

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

struct SearchOptions {
  BackwardForm form = BackwardForm::kFull;  // kSplit: gradients of the weights may come later
  TransferModel model = TransferModel::kLatency;
  SearchObjective objective = SearchObjective::kSeconds;
  // How many ops may be put in order or run in all, at about 8 million in a second. One schedule
  // is looked at whatever it is, and the published ones whenever it is enough for one.
  int64_t ops_max = int64_t{7} << 19;
  ScheduleJudge judge;  // empty: JudgeByProfile
  // Candidates are made for the memory that each of these leaves for activations, while the judge
  // has the last word; empty: for that of the profile.
  std::vector<PipelineProfile> rooms;
};

// A schedule that was looked at.
struct FoundSchedule {
  std::string name;
  double seconds = 0;
  double span_seconds = 0;
  double bubble_ratio = 0;
  double gap = 0;        // of the objective over its bound: 0.01 is 1 %
  ByteCount peak_bytes;  // on the fullest rank
  Schedule schedule;     // empty when another one is as good in time and memory
};

struct SearchResult {
  PipelineBound bound;  // of the objective
  // The fastest first: each has less memory than the one before it.
  std::vector<FoundSchedule> pareto;
  std::vector<FoundSchedule>
      others;       // without their ops, in the order in which they were looked at
  int64_t ops = 0;  // that were put in order or run

  const FoundSchedule& best() const { return pareto.front(); }
};

// Looks for schedules that are fast in the memory that ranks have: "auto". Candidates come from
// families and from lists, and are simulated; the fastest is improved op by op. Everything found
// fits the memory and can be proven; a candidate that does not fit, or cannot run, is skipped.
// Equal requests give equal results.
//
// InvalidArgument, ResourceExhausted as ComputePipelineBound; ResourceExhausted also when nothing
// that was looked at fits, and InvalidArgument when nothing can run. Cancelled when `cancelled`
// says so.
absl::StatusOr<SearchResult> SearchSchedules(const PipelineProfile& profile, int32_t microbatches,
                                             const SearchOptions& options = {},
                                             CancelCheck cancelled = NeverCancelled);

}  // namespace crossmesh
