#pragma once

#include "common/base/cancel_check.h"
#include "common/plan/slicing.h"
#include "common/plan/tensor_table.h"
#include "planner/network/demands.h"
#include "planner/network/gpu_network.h"
#include "planner/network/gpu_steps.h"
#include "planner/network/routing.h"

#include <cstdint>
#include <span>

#include <absl/status/statusor.h>

namespace crossmesh {

// Bring every class of a slicing to its receivers that do not hold it, where all of them, and all
// holders, are GPUs. References must outlive the use.
struct GpuRelaysProblem {
  const TensorTable& tensors;
  const Slicing& slicing;
  const HostGroups& groups;  // by device
  const GpuNetwork& network;
  std::span<const int64_t> copied;  // bytes that each device copies to itself
  int64_t chunk_bytes = 0;          // 0: the planner chooses
  CancelCheck cancelled = NeverCancelled;
};

// Relays with places and periods, how they are cut, and what is predicted of them.
struct GpuRelays {
  Routes routes;
  StepSizes sizes;
  StepsPrediction steps;
};

// The routes, cut so that steps are long enough (gpu_steps.h).
GpuRelays CutIntoSteps(const GpuRelaysProblem& problem, Routes routes);

// By the ports that GPUs have (gpu_routes.h). Of two orders, all pieces side by side or each GPU's
// one after the other, the one that is predicted to take less time. Errors as RouteBetweenGpus and
// RelaysBetweenGpus; Cancelled.
absl::StatusOr<GpuRelays> RelayBetweenGpus(const GpuRelaysProblem& problem);

}  // namespace crossmesh
