#pragma once

#include "planner/pipeline/schedule.h"

#include <cstdint>
#include <span>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The alternating order of given windows: stage i, alone on rank i, does forward ops until it holds
// windows[i] microbatches, then one backward and one forward op in turn, then what is left.
// Holds min(windows[i], microbatches) of them. period_law.h says which windows keep up with which
// period.
//
// InvalidArgument, naming `schedule`, with no stages or microbatches, or a window below 1.
absl::StatusOr<Schedule> MakeWindowOrder(std::span<const int32_t> windows, int32_t microbatches,
                                         absl::string_view schedule = "window order");

// The published ones. With few microbatches, windows are cut. InvalidArgument with no stages or no
// microbatches.
//
// GPipe (Huang et al., arXiv 1811.06965): windows that are never full, so all forward ops come
// before all backward ops.
absl::StatusOr<Schedule> MakeGpipe(int32_t stages, int32_t microbatches);
// 1F1B (PipeDream-Flush: Narayanan et al., arXiv 2006.09503): a window one larger for each stage
// further from the end, so that the first backward op meets a full pipeline.
absl::StatusOr<Schedule> MakeOneForwardOneBackward(int32_t stages, int32_t microbatches);
// Eager-1F1B (Zhuang et al., arXiv 2211.05322): a window two larger for each stage further from the
// end, so that a transfer each way between neighbours has an op of its own to hide behind.
absl::StatusOr<Schedule> MakeEagerOneForwardOneBackward(int32_t stages, int32_t microbatches);

}  // namespace crossmesh
