#pragma once

#include "common/mesh/topology.h"

#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>

namespace crossmesh {

struct GridProgramRequest;
struct LayerProgram;
struct PlannedLayers;

// A step's program, planned, with the number of each matrix's scatters that may be under way.
struct WindowedGrid {
  std::shared_ptr<const PlannedLayers> planned;
  int64_t pending_scatters = 1;
  // Of those that a step has, so many have memory; and what it takes with them.
  int64_t pending_scatters_max = 1;
  double seconds_of_max = 0;

  const LayerProgram& program() const;
};

// By more of its time steps are not told apart: predictions are not as good as that.
inline constexpr double kSameStep = 1e-3;

// Plans a step with the fewest pending scatters (Training::pending_scatters, which counts for
// nothing here) with which it takes no longer than with the most that have memory, to kSameStep: of
// 1, 2, 4, ... the first that does, and then halfway between that and the one before, again and
// again. Where a step takes longer the fewer may be pending, these are the fewest of all;
// in any case it takes longer with one fewer. What scatters take of a device, as MemoryTerms has
// it, is at most `scatter_bytes_max`; one has memory in any case. Without deferred scatters it is
// one.
//
// As MakeGridProgram and PlanLayers. Deterministic. Cost: PlanLayers, and SimulateLayers twice for
// each time that the number doubles.
absl::StatusOr<WindowedGrid> PlanWithScatterWindow(GridProgramRequest request,
                                                   const Topology& topology,
                                                   double scatter_bytes_max);

// The same with as many as the training says, whatever memory they take.
absl::StatusOr<WindowedGrid> PlanWithGivenScatters(const GridProgramRequest& request,
                                                   const Topology& topology);

}  // namespace crossmesh
