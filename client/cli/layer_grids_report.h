#pragma once

#include "client/cli/grid_flags.h"
#include "planner/parallelism/programs/layer_grids_price.h"

#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace crossmesh {

// A step whose layers have grids of their own: what of it each grid takes, every joint by the part
// that begins with it, and memory.
std::string LayerGridsExplanation(const GridRequest& request, const LayerGridsPrice& price);
nlohmann::json LayerGridsDocument(const GridRequest& request, const LayerGridsPrice& price);

// Several, a column for each: what steps take, and what devices hold.
std::string LayerGridsComparisonText(std::span<const LayerGridsPrice> prices);
std::string LayerGridsMemoryText(const GridRequest& request,
                                 std::span<const LayerGridsPrice> prices);
nlohmann::json LayerGridsDocuments(const GridRequest& request,
                                   std::span<const LayerGridsPrice> prices);

}  // namespace crossmesh
