#pragma once

#include "client/cli/cluster_view.h"

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace crossmesh {

// A cluster on one screen: its controller and store, what there is, what is wrong and what to do,
// what runs, what failed last.
std::string StatusText(const ClusterView& view);
nlohmann::json StatusDocument(const ClusterView& view);

// "2 LOST, 3 READY", or "none".
std::string WorkersText(const ClusterView& view);

}  // namespace crossmesh
