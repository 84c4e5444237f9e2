#pragma once

#include "planner/parallelism/grid_rules.h"
#include "planner/parallelism/step_model.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Which grids are looked at.
struct GridLimits {
  PerAxis<int64_t> most{{kAny, kAny, kAny, kAny, kAny, kAny, kAny}};  // sizes of axes
  // Instead of the device's memory.
  std::optional<int64_t> memory_bytes_max;

  static constexpr int64_t kAny = std::numeric_limits<int64_t>::max();
};

// A grid that keeps to all rules, with its best microbatch.
struct RankedGrid {
  GridShape shape;
  StepPrice price;
  double seconds = 0;
  double memory_bytes = 0;
};

// A grid that does not.
struct RefusedGrid {
  Grid grid;
  GridRule rule = GridRule::kHeads;
  int64_t microbatch = 0;   // of kMemory: the one that needs least
  double memory_bytes = 0;  // of kMemory: what it needs
};

struct GridRanking {
  // By predicted seconds; those of equal ones by memory, then by fewer axes, then by sizes.
  std::vector<RankedGrid> feasible;
  std::vector<RefusedGrid> refused;  // in the order of sizes
  int64_t memory_bytes_max = 0;

  // Of refused grids, by rule.
  std::vector<int64_t> CountsByRule() const;
  // Of all grids that fail nothing but kMemory, the one that needs least; null where there is none.
  const RefusedGrid* LeastMemory() const;
};

// Every grid of as many devices as the model has rates of: all factorisations over the seven axes.
// Where the training names no microbatch, each grid has the one of least time that fits.
// Deterministic. Cost: grids, times the divisors of what a device has of the batch.
GridRanking RankGrids(const StepModel& step, const GridLimits& limits = {});

// One grid by the same rules. InvalidArgument: another number of devices, or the rule that fails
// and its nearest fix. ResourceExhausted: memory, with what would fit. `over_memory`: it is priced
// though it does not fit.
absl::StatusOr<RankedGrid> PriceGrid(const StepModel& step, const Grid& grid,
                                     const GridLimits& limits = {}, bool over_memory = false);

// Of a ranking without a feasible grid: why. ResourceExhausted, with the least memory of any grid,
// where that is all that is missing; InvalidArgument, with the rules and how many grids each
// refuses, where no grid keeps to the others.
absl::Status NoGridError(const StepModel& step, const GridRanking& ranking);

// What fails and the nearest fix. Of kMemory, the first change of training that fits: more
// computed again, scattered activations, ZeRO.
std::string ExplainRefusal(const StepModel& step, const RefusedGrid& refused,
                           int64_t memory_bytes_max);

}  // namespace crossmesh
