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

std::vector<std::string> PlanCaseNames();
PlanCase MakePlanCase(const std::string& name);

}  // namespace crossmesh
