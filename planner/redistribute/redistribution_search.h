#pragma once

#include "planner/redistribute/collective_cost.h"
#include "planner/redistribute/derivation.h"
#include "planner/redistribute/redistribution_request.h"
#include "planner/redistribute/step.h"

#include <cstddef>
#include <cstdint>
#include <optional>

#include <absl/status/statusor.h>

namespace crossmesh {

enum class RedistributionObjective : uint8_t { kSeconds, kBytes };

struct RedistributionOptions {
  RedistributionObjective objective = RedistributionObjective::kSeconds;
  CollectiveCost cost;
  // Limits: of in, out and staging of a step, and of one local array, on every device.
  std::optional<int64_t> live_bytes_max;
  std::optional<int64_t> local_bytes_max;
  StepStaging staging;
  // Whether a step may be a relay: any layout to any other, point to point. Where a dimension that
  // does not divide changes it is one all the same.
  bool relay = true;
  int64_t nodes_max = 40000;  // types that are looked at, each time that a step leads to one
  size_t atom_ways_max = 16;  // ways to split axes whose sizes have several primes
};

struct RedistributionResult {
  Derivation derivation;
  int64_t nodes = 0;  // types that were looked at
};

// The best derivation by the objective, then, as far as an eighth of the budget goes, by bytes,
// communicating steps and steps: A* over local types, by what is still missing at least. Best of
// the steps that AppendMoves has: on small meshes these lose nothing (docs/redistribution.md).
// Equal requests give equal derivations. After `nodes_max` nodes it is the best one that was seen,
// or reductions and a relay where these are allowed and none was, and its origin says so.
//
// InvalidArgument as Validate, and for a limit below 1. ResourceExhausted below the least feasible
// limit of live bytes, which the message names, or when the budget is spent without any path. Cost:
// nodes times moves.
absl::StatusOr<RedistributionResult> SearchRedistribution(
    const RedistributionRequest& request, const RedistributionOptions& options = {});

}  // namespace crossmesh
