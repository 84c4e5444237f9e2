#pragma once

#include "crossmesh/v1/pipeline.pb.h"

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace crossmesh {

// Layer by layer what the ops of a predicted run take on all ranks, and what of its messages is
// exposed and hidden. Empty: of a program whose ops say no layer.
std::string LayerExposuresText(const v1::LayerRunSummary& run);
nlohmann::json LayerExposuresDocument(const v1::LayerRunSummary& run);

}  // namespace crossmesh
