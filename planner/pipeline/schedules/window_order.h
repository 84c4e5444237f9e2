#pragma once

#include "planner/pipeline/schedule.h"

#include <cstdint>
#include <span>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The alternating order of given windows: stage i, alone on rank i, does forward ops until it holds
// windows[i] microbatches, then one backward and one forward op in turn, then what is left.
// Holds min(windows[i], microbatches) of them. GPipe, 1F1B and eager-1F1B are such orders;
// period_law.h says which windows keep up with which period.
//
// InvalidArgument, naming `schedule`, with no stages or microbatches, or a window below 1.
absl::StatusOr<Schedule> MakeWindowOrder(std::span<const int32_t> windows, int32_t microbatches,
                                         absl::string_view schedule = "window order");

}  // namespace crossmesh
