#pragma once

#include <nlohmann/json_fwd.hpp>

namespace crossmesh {

// How long the change of layout of a model of 36,945 tensors takes on 16 devices of two hosts, from
// its rules to a plan that is proven; by one move where that is as fast, or by collectives alone.
nlohmann::json MeasureModelRedistribution(bool no_relays);

}  // namespace crossmesh
