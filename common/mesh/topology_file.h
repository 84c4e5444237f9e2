#pragma once

#include "common/mesh/topology.h"

#include <string>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Reads the text of a network file:
//
//   {"hosts": [{"name": "a", "nics": [{"name": "eth0", "out_bytes_per_second": 12500000000,
//                                      "in_bytes_per_second": 12500000000,
//                                      "out_latency_ns": 2000, "in_latency_ns": 2000}],
//               "gpus": [{"device": 0, "nic": "eth0", "link_out_bytes_per_second": 450000000000,
//                         "link_in_bytes_per_second": 450000000000,
//                         "copy_bytes_per_second": 1300000000000, "link_source": "assumed",
//                         "copy_source": "assumed"}],
//               "local_bytes_per_second": 100000000000}],
//    "racks": [{"name": "r1", "hosts": ["a"], "up_bytes_per_second": 50000000000,
//               "down_bytes_per_second": 50000000000}],
//    "assumed_bytes_per_second": 12500000000,
//    "gpu_costs": {"launch_ns": {"value": 5000, "source": "assumed"}, ...}}
//
// Each of the keys at the top may be missing; so may latencies, which are 0 then, the local rate,
// which is not a limit then, and GPUs, which need all of their keys but sources where they are
// listed. Each of gpu_costs (GpuCosts) may be missing, and is what is assumed then.
// InvalidArgument: malformed JSON, a key that is unknown, missing or given twice, a value of
// another type, and what Topology::Create refuses.
absl::StatusOr<Topology> ParseTopologyFile(absl::string_view text);

// The text that reads as `topology`, with every key, a line to each of the innermost values.
std::string ToTopologyFile(const Topology& topology);

}  // namespace crossmesh
