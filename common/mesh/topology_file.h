#pragma once

#include "common/mesh/topology.h"

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Reads the text of a network file:
//
//   {"hosts": [{"name": "a", "nics": [{"name": "eth0", "out_bytes_per_second": 12500000000,
//                                      "in_bytes_per_second": 12500000000}]}],
//    "racks": [{"name": "r1", "hosts": ["a"], "up_bytes_per_second": 50000000000,
//               "down_bytes_per_second": 50000000000}],
//    "assumed_bytes_per_second": 12500000000}
//
// Each of the three keys at the top may be missing. InvalidArgument: malformed JSON, a key that is
// unknown, missing or given twice, a value of another type, and what Topology::Create refuses.
absl::StatusOr<Topology> ParseTopologyFile(absl::string_view text);

}  // namespace crossmesh
