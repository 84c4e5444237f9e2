#pragma once

#include "common/plan/course.h"
#include "common/plan/plan.h"
#include "common/plan/tensor_table.h"
#include "planner/network/host_network.h"
#include "planner/redistribute/planning/course_draft.h"

#include <cstdint>
#include <optional>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// The course with its first step, in which devices of three hosts or more, one of each, send their
// summands to those that keep the sums, as the steps of a ring: what has come to a device goes on
// to the next one, with the device's own summand added (common/plan/own_summand.h). So every port
// hears from one host. Piece by piece the sum begins at the device after the one that keeps it, in
// the order of the mesh. Nothing where the step is something else: where pieces differ in size,
// other devices have the same summands, or a piece lies in runs of less than so many elements in
// the source tile; nor where the sum is of numbers that would be rounded at every device to fewer
// bits than they are added in, or whose order `reduction_order` gives. What TensorTable::Create
// says. Cost: the steps times the devices.
absl::StatusOr<std::optional<Course<StepTable>>> DraftSumRing(const Course<StepTable>& draft,
                                                              absl::string_view reduction_order,
                                                              int64_t run_elements);

// Whether a round of a ring would take far longer than its openings and checksums, of which
// predictions know nothing, by what the sums are predicted to take at once.
bool HasLongRounds(const Course<Plan>& at_once);

// Whether the course with a ring is predicted to take about as long as the one without. Predictions
// do not know what streams of many hosts lose that meet at a port (docs/redistribution.md).
// `whole`, `network`: as of PredictCourses.
bool IsRingWorthIt(const Course<Plan>& ring, const Course<Plan>& at_once, const TensorTable& whole,
                   const HostNetwork& network);

}  // namespace crossmesh
