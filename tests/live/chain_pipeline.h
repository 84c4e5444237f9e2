#pragma once

#include "crossmesh/v1/pipeline.pb.h"

#include <string>
#include <vector>

namespace crossmesh {

// A chain of stages, one for each host, the last one also with what the first one has. `seconds`:
// of each op.
v1::PipelineSpec ChainPipeline(const std::vector<std::string>& hosts, double seconds);

}  // namespace crossmesh
