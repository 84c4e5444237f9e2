#pragma once

#include <absl/status/status.h>

namespace crossmesh {

// Lets this process have as many descriptors as its hard limit allows: the soft one, often 1,024,
// is low for the sake of programs that use select(2). Internal: the system refuses.
absl::Status RaiseDescriptorLimit();

}  // namespace crossmesh
