#pragma once

#include <string>
#include <vector>

#include <grpcpp/server_builder.h>

namespace crossmesh {

// Has the server that `builder` starts put the full names of its services into `names`, which
// outlives that start.
void CollectServiceNames(std::vector<std::string>& names, grpc::ServerBuilder& builder);

}  // namespace crossmesh
