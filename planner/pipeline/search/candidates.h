#pragma once

#include "planner/pipeline/profile.h"
#include "planner/pipeline/schedule.h"

#include <functional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

// A schedule that may be worth a look, not made yet.
struct Candidate {
  std::string name;       // "1f1b", "windows for period 3.2"
  bool is_named = false;  // a published one: looked at whatever the search may cost
  int32_t effort = 1;     // to make it, in runs of a schedule
  std::function<absl::StatusOr<Schedule>()> make;
};

struct CandidateRequest {
  int32_t microbatches = 0;
  BackwardForm form = BackwardForm::kFull;
  double seconds = 0;    // a bound of the time
  int64_t beam_ops = 0;  // that a beam may put in order
  // Messages may be in each other's way, and so gradients that leave earlier too.
  bool shares_ports = false;
};

// Schedules for a pipeline whose backward ops have that form: a list schedule, the published ones
// that want stages placed as they are, and then, roughly the best first, more lists and, where
// stages are alone on their ranks, one after the other, window orders and delayed orders as large
// as the memory, and smaller ones. Where sequences are in parts, orders of these as large as the
// memory, and smaller ones. Where schedules are small, also those of beams. Not all fit the memory.
// The profile must be valid, with memory for a microbatch on every rank, and outlive the
// candidates.
std::vector<Candidate> ListCandidates(const PipelineProfile& profile,
                                      const CandidateRequest& request);

}  // namespace crossmesh
