// The schedules by the names that users give.

#pragma once

#include "planner/pipeline/profile.h"
#include "planner/pipeline/schedule.h"

#include <cstdint>
#include <span>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// "gpipe", "1f1b", ... , simple ones first.
std::vector<absl::string_view> ScheduleNames();

// InvalidArgument, saying how the schedule wants stages placed, or sequences cut, unless those of
// the profile are; and with another name than the above.
absl::Status CheckPlacement(absl::string_view schedule, const PipelineProfile& profile);

// Has it backward ops in one, where they are not asked for in two? Not where a schedule lives on
// gradients of the weights that come later. False of a name that there is not.
bool HasWholeBackwardOps(absl::string_view schedule);

// What a named schedule is made for. The profile must be valid.
struct NamedScheduleRequest {
  const PipelineProfile& profile;
  int32_t microbatches = 0;
  BackwardForm form = BackwardForm::kFull;  // of those that can have either
  // Of `window_order`, by stage; empty: the smallest of the shortest period that memory allows.
  std::span<const int32_t> windows;
};

// InvalidArgument: what CheckPlacement, CheckMicrobatches, the schedule itself, and, for windows
// that are not given, FastestWindows find. Schedules that have gradients one by one have them in
// either form.
absl::StatusOr<Schedule> MakeNamedSchedule(absl::string_view name,
                                           const NamedScheduleRequest& request);

// The most microbatches whose activations a stage has memory for, by stage, from 1 to
// `microbatches`, as if it had its rank's memory alone.
std::vector<int32_t> WindowsThatFit(const PipelineProfile& profile, int32_t microbatches);

// The profile without edges that skip stages, in the order of the chain: what the period law is
// about.
PipelineProfile WithoutSkips(PipelineProfile profile);

}  // namespace crossmesh
