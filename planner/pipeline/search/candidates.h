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
  std::string name;  // "1f1b", "windows for period 3.2"
  std::function<absl::StatusOr<Schedule>()> make;
};

// Schedules for a pipeline whose backward ops have that form, roughly the best first: list
// schedules; where stages are alone on their ranks, one after the other, window
// orders and delayed orders as large as the memory, and smaller ones, and the published schedules,
// also those for several stages to a rank where the stages are placed as they want. Where
// sequences are in parts, orders of these as large as the memory, and smaller ones. Not all fit the
// memory. `seconds` is a bound of the time. The profile must be valid, with memory for
// a microbatch on every rank, and outlive the candidates.
std::vector<Candidate> ListCandidates(const PipelineProfile& profile, int32_t microbatches,
                                      BackwardForm form, double seconds);

}  // namespace crossmesh
