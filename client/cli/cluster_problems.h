#pragma once

#include "client/cli/cluster_view.h"

#include <string>
#include <vector>

namespace crossmesh {

// Something that an operator should know of, and what to do about it.
struct ClusterProblem {
  std::string what;  // names the object
  std::string remedy;
};

// All that one look shows, that of the controller first, then that of workers by name.
std::vector<ClusterProblem> ProblemsOf(const ClusterView& view);

}  // namespace crossmesh
