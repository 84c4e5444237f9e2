#pragma once

#include "crossmesh/v1/network_service.pb.h"

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>

namespace crossmesh {

class Cli;

// `network measure --mesh`: which axes are measured, and with how much.
struct NetworkAxesFlags {
  std::string mesh;
  std::vector<std::string> axes;  // none: every position that an axis of any grid may have
  int64_t gather_bytes = int64_t{16} << 20;
};

// Rehearses gathers over the groups of the axes on the workers, all groups beside each other, and
// stores what was found with the network's description. A position of which too little could be
// measured is left out, with a warning. InvalidArgument: a mesh of one device; an axis that the
// mesh does not have, or of one device. Aborted: the description has changed meanwhile. The error
// of a run names its position.
absl::Status MeasureAxes(Cli& cli, const NetworkAxesFlags& flags);

// What is known of axes, a row for each position, beside what the network's description says.
// Nothing where nothing was measured.
std::string AxesText(const v1::Network& network);

}  // namespace crossmesh
