#pragma once

#include "common/mesh/layout_rules.h"
#include "common/mesh/manifest.h"
#include "common/mesh/mesh.h"

#include <cstdint>
#include <string>
#include <vector>

namespace crossmesh {

// A request to be planned.
struct PlanCase {
  Manifest manifest;
  Mesh source_mesh;
  LayoutRules source_rules;
  Mesh destination_mesh;
  LayoutRules destination_rules;
  std::vector<std::string> replica_axes;
};

// Qwen3-235B-A22B from FSDP on so many hosts of 8 slots, a0, a1, ..., to replicas on hosts b0, b1,
// ..., each cut into 8.
PlanCase Qwen3ToReplicas(int64_t hosts, int64_t replicas);

std::vector<std::string> PlanCaseNames();
PlanCase MakePlanCase(const std::string& name);

}  // namespace crossmesh
