#pragma once

#include "controller/dispatch/planned_reshard.h"
#include "crossmesh/v1/operation_service.pb.h"

#include <cstdint>
#include <string>
#include <vector>

namespace crossmesh {

// What is told of the plan of an operation's first attempt, and outlives it.
struct OperationPlan {
  static OperationPlan Of(const PlannedReshard& planned);

  std::string id;
  int64_t total_bytes = 0;
  std::string strategy;
  bool assumed_rates = false;
  std::vector<PlannedReshard::Replica> replicas;
  // What was planned and predicted.
  v1::OperationReport report;
};

}  // namespace crossmesh
