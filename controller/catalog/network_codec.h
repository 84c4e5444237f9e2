#pragma once

#include "controller/catalog/network_record.h"
#include "crossmesh/v1/network_service.pb.h"

#include <absl/status/statusor.h>

namespace crossmesh {

v1::Network ToProto(const NetworkDescription& description);
// InvalidArgument: what Topology::Create refuses, a time out of range, or a source that is none.
absl::StatusOr<NetworkDescription> FromProto(const v1::Network& proto);

}  // namespace crossmesh
