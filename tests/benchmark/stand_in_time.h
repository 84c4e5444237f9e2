#pragma once

#include "tests/standin/control/stand_in_control.h"

#include <cstdint>
#include <vector>

#include <absl/strings/string_view.h>

namespace crossmesh {

int64_t CountCalls(const std::vector<StandInCall>& calls, absl::string_view name);

// What the calls took of the stand-ins' own time. The log has wall time, in which others may have
// had the processor: so each call is taken to last as long as the median of its name.
double StandInUs(const std::vector<StandInCall>& calls);

}  // namespace crossmesh
