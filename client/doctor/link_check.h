#pragma once

#include "client/doctor/host_checks.h"
#include "crossmesh/v1/network_service.pb.h"

#include <absl/status/statusor.h>

namespace crossmesh {

// A short measurement: enough to tell a link that is broken or far too slow.
v1::MeasureNetworkRequest ShortProbe();

// What the links between workers came to: a problem where one cannot be used; a note where one
// falls far short of its description, the probe's conditions were bad, or there was nothing to
// probe.
HostCheck CheckLinks(const absl::StatusOr<v1::MeasureNetworkResponse::Result>& measured);

}  // namespace crossmesh
